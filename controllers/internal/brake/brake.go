// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package brake limits fights between a controller and another client over the objects that the controller enforces.
// Without the brake, the controller would immediately revert every deletion and change, forever.
//
// If another client keeps deleting an object, the controller recreates the object after increasing delays. This is
// safe, because the absence of the object gives nobody more permissions. If another client keeps reverting the content
// of an object, the content is still corrected, but only every few seconds: it may restrict a consumer or direct
// traffic, and a fight must not disable that. Package asked describes which changes by other clients are accepted.
// Objects that restrict consumers or grant permissions, and the metadata of namespaces (Client), are also corrected
// every few seconds, whether they are changed or deleted.
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

// Brake decides when one controller may recreate or correct an object that another client keeps deleting or reverting.
// Each enforced object is requested by another object, and has the same name and namespace, unless Named or In is
// called. It is safe for concurrent use.
type Brake struct {
	kind      schema.GroupVersionKind // kind of the enforced objects
	live      client.Reader
	report    *report.Reporter
	clock     clock.PassiveClock
	nameOf    func(request string) string
	namespace string // namespace of the enforced objects, or empty if it is the namespace of the request
	creations *oscillation.Guard[types.NamespacedName]
	changes   *oscillation.Guard[types.NamespacedName]
}

// New returns the brake of a controller that enforces objects of the kind. The objects are read with live. c may be
// nil.
func New(kind schema.GroupVersionKind, live client.Reader, r *report.Reporter, c clock.PassiveClock) *Brake {
	if c == nil {
		c = clock.RealClock{}
	}
	return &Brake{
		kind: kind, live: live, report: r, clock: c, nameOf: func(request string) string { return request },
		creations: oscillation.New[types.NamespacedName](c, oscillation.Standard),
		changes:   oscillation.New[types.NamespacedName](c, oscillation.Protective),
	}
}

// Named sets a function that returns the name of an enforced object, given the name of the object that requests it.
func (b *Brake) Named(nameOf func(request string) string) *Brake {
	b.nameOf = nameOf
	return b
}

// Restoring makes the brake recreate deleted objects as often as it corrects changed objects, i.e. at most every ten
// seconds. It is for objects whose absence would harm the party that requests them.
func (b *Brake) Restoring() *Brake {
	b.creations = oscillation.New[types.NamespacedName](b.clock, oscillation.Protective)
	return b
}

// In returns a brake for enforced objects in the given namespace, which may be in another cluster. They are read with
// live. The brake shares its records with b. The namespace must always be the same for the same requesting object.
func (b *Brake) In(namespace string, live client.Reader) *Brake {
	other := *b
	other.namespace, other.live = namespace, live
	return &other
}

// created is the state that is recorded for each creation, regardless of the content of the object.
const created = 1

// MayCreate returns a *oscillation.QuarantineError if another client keeps deleting the enforced object. request is the
// object that requests it.
func (b *Brake) MayCreate(ctx context.Context, request client.Object, action string) error {
	return b.reported(ctx, request, action, nil, b.creations, b.creations.MayWrite(client.ObjectKeyFromObject(request), causeOf(request), created))
}

// Created records that the object was created.
func (b *Brake) Created(request client.Object) {
	b.creations.RecordWrite(client.ObjectKeyFromObject(request), causeOf(request), created)
}

// MayChange returns a *oscillation.QuarantineError if another client keeps reverting the patch. desired is a text with
// all inputs of the patch apart from the request. If desired has changed, a write is not part of a fight.
func (b *Brake) MayChange(ctx context.Context, request client.Object, action, desired string, patch jsonpatch.Patch) error {
	cause := causeOf(request) ^ hashOf(desired)
	return b.reported(ctx, request, action, patch, b.changes, b.changes.MayWrite(client.ObjectKeyFromObject(request), cause, hashOf(patch.String())))
}

// Changed records that the patch was written.
func (b *Brake) Changed(request client.Object, desired string, patch jsonpatch.Patch) {
	b.changes.RecordWrite(client.ObjectKeyFromObject(request), causeOf(request)^hashOf(desired), hashOf(patch.String()))
}

// Forget drops the state of an object that is no longer requested.
func (b *Brake) Forget(key types.NamespacedName) {
	b.creations.DropKey(key)
	b.changes.DropKey(key)
}

// Quarantined returns the number of objects that are quarantined, i.e. not written at the moment.
func (b *Brake) Quarantined() int { return b.creations.Quarantined() + b.changes.Quarantined() }

// Wait returns the result of a reconciliation. If err contains only quarantines, the reconciliation is not a failure,
// and is repeated when the first quarantine ends. If err also contains another error, the reconciliation fails. If the
// quarantine is short, it is still repeated when the quarantine ends, because the backoff of the other error must not
// delay the correction of objects that restrict a party.
func Wait(wait time.Duration, err error) (time.Duration, error) {
	fight := onlyFight(err)
	switch {
	case fight == nil:
		if errors.As(err, &fight) && fight.Left <= oscillation.Protective.Most {
			err = report.Later(err, fight.Left)
		}
		return wait, err
	case wait == 0:
		return fight.Left, nil
	}
	return min(wait, fight.Left), nil
}

// IsFight reports whether err contains only quarantines.
func IsFight(err error) bool { return onlyFight(err) != nil }

// onlyFight returns the quarantine in err that ends first. It returns nil if err contains any other error.
func onlyFight(err error) (fight *oscillation.QuarantineError) {
	switch e := err.(type) { //nolint:errorlint // errors.As would find one among others
	case *oscillation.QuarantineError:
		return e
	case interface{ Unwrap() error }:
		return onlyFight(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			one := onlyFight(part)
			if one == nil {
				return nil
			}
			if fight == nil || one.Left < fight.Left {
				fight = one
			}
		}
	}
	return fight
}

// reported reports the beginning of a quarantine, together with the client that causes it, and returns err. A
// quarantine that is no longer than the previous one is reported again only if the client was unknown before.
func (b *Brake) reported(ctx context.Context, request client.Object, action string, patch jsonpatch.Patch, g *oscillation.Guard[types.NamespacedName], err error) error {
	var fight *oscillation.QuarantineError
	key := types.NamespacedName{Namespace: request.GetNamespace(), Name: b.nameOf(request.GetName())}
	if b.namespace != "" {
		key.Namespace = b.namespace
	}
	record := func(rival string) { g.RecordRival(client.ObjectKeyFromObject(request), rival) }
	if errors.As(err, &fight) && blame(ctx, b.live, b.kind, key, request, pathsOf(patch), fight, record) {
		b.report.Warn(request, wire.ReflectionQuarantinedReason, action, b.kind.Kind+" "+key.String()+": "+fight.Error())
	}
	return err
}

// blame finds out which client reverts the writes, unless it is already known. It reports whether the quarantine should
// be reported. The first attempt may fail, because immediately after our write the object has no other field manager.
func blame(ctx context.Context, live client.Reader, kind schema.GroupVersionKind, key types.NamespacedName, request client.Object,
	fields []string, fight *oscillation.QuarantineError, record func(rival string),
) bool {
	if !fight.Grew && fight.Rival != "" {
		return false
	}
	rival, known := describeRival(ctx, live, kind, key, request, fields)
	fight.Rival = rival
	if known {
		record(rival)
	}
	return fight.Grew || known
}

// pathsOf returns the paths of the fields in the patch.
func pathsOf(patch jsonpatch.Patch) (fields []string) {
	for _, operation := range patch {
		if operation.Op != "test" {
			fields = append(fields, operation.Path)
		}
	}
	return fields
}

// describeRival describes the client that deletes the object with the given key or writes its fields. known is false if
// the client is not known.
func describeRival(ctx context.Context, live client.Reader, kind schema.GroupVersionKind, key types.NamespacedName, request client.Object,
	fields []string,
) (rival string, known bool) {
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(kind)
	switch err := live.Get(ctx, key, found); {
	case apierrors.IsNotFound(err):
		return oscillation.DescribeDeleter(request.GetLabels(), request.GetAnnotations()), true
	case err != nil:
		return "", false
	}
	return oscillation.DescribeWriter(found.ManagedFields, "", fields), oscillation.HasOtherWriter(found.ManagedFields, "")
}

// causeOf returns a hash of the requesting object.
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
