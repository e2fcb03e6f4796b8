// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package brake keeps a controller from fighting with another client about the objects that it enforces: without it, each deletion and each
// change of such an object is answered at once, for ever.
//
// An object that another client keeps deleting is left alone for growing periods: nobody has more because it is missing. One whose content is
// corrected again and again (see package asked for what is left as others have changed it) is still corrected, but only every few seconds: its
// content may restrict what a consumer can do, or direct traffic, and a fight must not be a way around that. The same holds for objects that restrict
// consumers (Client), whether they are changed or deleted. RoleBindings and the labels of namespaces, which admit a consumer or its pods at all, are
// corrected at once.
package brake

import (
	"context"
	"errors"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/internal/jsonpatch"
	"github.com/refract-project/refract/internal/oscillation"
)

// Brake is the brake of one controller, whose objects have the names of those that request them. Safe for concurrent use.
type Brake struct {
	kind      schema.GroupVersionKind // of the enforced objects
	live      client.Reader
	report    *report.Reporter
	creations *oscillation.Guard[types.NamespacedName]
	changes   *oscillation.Guard[types.NamespacedName]
}

// New returns the brake of a controller that enforces objects of the kind, which are read from live. c may be nil.
func New(kind schema.GroupVersionKind, live client.Reader, r *report.Reporter, c clock.PassiveClock) *Brake {
	if c == nil {
		c = clock.RealClock{}
	}
	return &Brake{
		kind: kind, live: live, report: r,
		creations: oscillation.New[types.NamespacedName](c, oscillation.Standard),
		changes:   oscillation.New[types.NamespacedName](c, oscillation.Protective),
	}
}

// created is the state of an object that was created; there is no other one.
const created = 1

// MayCreate returns *oscillation.QuarantineError if another client keeps deleting the object that request asks for.
func (b *Brake) MayCreate(ctx context.Context, request client.Object, action string) error {
	return b.reported(ctx, request, action, nil, b.creations, b.creations.MayWrite(client.ObjectKeyFromObject(request), causeOf(request), created))
}

// Created records that the object was created.
func (b *Brake) Created(request client.Object) {
	b.creations.RecordWrite(client.ObjectKeyFromObject(request), causeOf(request), created)
}

// MayChange returns *oscillation.QuarantineError if another client keeps reverting what the patch writes. desired is what the patch depends on
// besides the request, so that a change of that is no fight.
func (b *Brake) MayChange(ctx context.Context, request client.Object, action, desired string, patch jsonpatch.Patch) error {
	cause := causeOf(request) ^ hashOf(desired)
	return b.reported(ctx, request, action, patch, b.changes, b.changes.MayWrite(client.ObjectKeyFromObject(request), cause, hashOf(patch.String())))
}

// Changed records that the patch was written.
func (b *Brake) Changed(request client.Object, desired string, patch jsonpatch.Patch) {
	b.changes.RecordWrite(client.ObjectKeyFromObject(request), causeOf(request)^hashOf(desired), hashOf(patch.String()))
}

// Forget drops what is remembered of an object that is not requested any more.
func (b *Brake) Forget(key types.NamespacedName) {
	b.creations.DropKey(key)
	b.changes.DropKey(key)
}

// Quarantined counts the objects that are left alone now.
func (b *Brake) Quarantined() int { return b.creations.Quarantined() + b.changes.Quarantined() }

// Wait returns the result of a reconciliation that is repeated when a quarantine ends, if it had no other errors.
func Wait(wait time.Duration, err error) (time.Duration, error) {
	fight := onlyFight(err)
	switch {
	case fight == nil:
		return wait, err
	case wait == 0:
		return fight.Left, nil
	}
	return min(wait, fight.Left), nil
}

// onlyFight returns the quarantine that an error consists of, nil if there is something else in it.
func onlyFight(err error) (fight *oscillation.QuarantineError) {
	switch e := err.(type) { //nolint:errorlint // errors.As would find one among others
	case *oscillation.QuarantineError:
		return e
	case interface{ Unwrap() error }:
		return onlyFight(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			if fight = onlyFight(part); fight == nil {
				return nil
			}
		}
	}
	return fight
}

// reported returns the error, and reports it when a quarantine begins, with the client that is the cause, unless it is as long as the one
// before, about which the same was said.
func (b *Brake) reported(ctx context.Context, request client.Object, action string, patch jsonpatch.Patch, g *oscillation.Guard[types.NamespacedName], err error) error {
	var fight *oscillation.QuarantineError
	if errors.As(err, &fight) && blame(ctx, b.live, b.kind, request, patch, fight, func(rival string) { g.RecordRival(client.ObjectKeyFromObject(request), rival) }) {
		key := client.ObjectKeyFromObject(request)
		b.report.Warn(request, wire.ReflectionQuarantinedReason, action, b.kind.Kind+" "+key.String()+": "+fight.Error())
	}
	return err
}

// blame finds out who reverts the writes about which a quarantine is, unless that is known, and returns whether to report it. The client may not be found
// at the first attempt: right after a write of ours, the object has no other field manager.
func blame(ctx context.Context, live client.Reader, kind schema.GroupVersionKind, request client.Object, patch jsonpatch.Patch, fight *oscillation.QuarantineError, record func(rival string)) bool {
	if !fight.Grew && fight.Rival != "" {
		return false
	}
	rival, known := describeRival(ctx, live, kind, request, patch)
	fight.Rival = rival
	if known {
		record(rival)
	}
	return fight.Grew || known
}

// describeRival returns who deletes, or writes, the object that has the name of the request, and whether that is known.
func describeRival(ctx context.Context, live client.Reader, kind schema.GroupVersionKind, request client.Object, patch jsonpatch.Patch) (rival string, known bool) {
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(kind)
	switch err := live.Get(ctx, client.ObjectKeyFromObject(request), found); {
	case apierrors.IsNotFound(err):
		return oscillation.DescribeDeleter(request.GetLabels(), request.GetAnnotations()), true
	case err != nil:
		return "", false
	}
	var fields []string
	for _, operation := range patch {
		if operation.Op != "test" {
			fields = append(fields, operation.Path)
		}
	}
	return oscillation.DescribeWriter(found.ManagedFields, "", fields), oscillation.HasOtherWriter(found.ManagedFields, "")
}

// causeOf is the hash of what is requested.
func causeOf(request client.Object) uint64 {
	text := string(request.GetUID()) + "/" + strconv.FormatInt(request.GetGeneration(), 10)
	for _, entries := range []map[string]string{request.GetLabels(), request.GetAnnotations()} {
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			text += "\x00" + key + "\x00" + entries[key]
		}
		text += "\x01"
	}
	return hashOf(text)
}

func hashOf(text string) uint64 {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(text))
	return sum.Sum64()
}
