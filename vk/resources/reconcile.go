// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/admission"
)

// again selects when a ReflectedResource is reconciled again if nothing happens before.
type again int

const (
	never     again = iota // not at all, because the object no longer exists
	later                  // with backoff, because a requirement is missing
	regularly              // periodically, because no requirement is missing
	shortly                // in a moment, because an operation has not taken effect yet
)

// definitionDelay is how long an API server that is not busy takes to serve a new definition.
const definitionDelay = time.Second

func (f *Follower) scheduleNext(name string, when again) {
	switch when {
	case never:
		f.queue.Forget(name)
	case later:
		f.queue.AddRateLimited(name)
	case regularly:
		f.queue.Forget(name)
		f.queue.AddAfter(name, f.options.RecheckEvery)
	case shortly:
		f.queue.AddAfter(name, definitionDelay)
	}
}

// reconcileResource applies one ReflectedResource, reports the result in its status, and returns when it must be
// reconciled again.
func (f *Follower) reconcileResource(ctx context.Context, name string) again {
	stored, _, err := f.informer.GetStore().GetByKey(name)
	object, ok := stored.(*unstructured.Unstructured)
	if err != nil || !ok || object.GetDeletionTimestamp() != nil {
		f.stopReflection(name)
		f.forgetStatus(name)
		return never
	}
	verdict, when := f.applySpec(ctx, object)
	if ctx.Err() == nil {
		err = f.reportStatus(ctx, object, verdict)
	}
	if ctx.Err() != nil {
		return never
	}
	if err != nil {
		f.log.Warn("The status of a ReflectedResource cannot be written", "resource", name, "err", err)
		f.denials.Report(f.options.Events, object, object.GetUID(), f.options.NodeName, err)
		return later
	}
	err = f.dropGone(ctx, object)
	if ctx.Err() != nil {
		return when
	}
	// A request that RBAC forbids is not an error, because the roles of earlier versions of Refract do not grant these
	// permissions.
	if err != nil && (!apierrors.IsForbidden(err) || admission.DenyingPolicy(err) != "") {
		f.log.Warn("Cannot determine which virtual nodes are gone; their entries stay in the status of the ReflectedResource", "resource", name, "err", err)
	}
	f.denials.Report(f.options.Events, object, object.GetUID(), f.options.NodeName, err)
	return when
}

// applySpec starts, changes, continues or stops the reflection, as the spec requires.
func (f *Follower) applySpec(ctx context.Context, object *unstructured.Unstructured) (condition, again) {
	name := object.GetName()
	spec, err := decodeSpec(object)
	if err != nil {
		return f.stopForError(name, err)
	}
	if *spec.Workers == 0 {
		f.stopReflection(name)
		return condition{reason: pluginsv1alpha1.PausedReason, message: "spec.workers is 0; remote objects are left unchanged"}, regularly
	}
	f.adjustReflection(name, spec)
	p, err := f.planReflection(ctx, spec)
	if err != nil {
		return f.handleError(name, err)
	}
	missing := f.checkPermissions(ctx, p)
	if missing != nil && !missing.some {
		return f.handleError(name, missing.fault)
	}
	if err := f.startReflection(name, p); err != nil {
		return f.stopForError(name, err)
	}
	if missing != nil {
		return missing.fault.toCondition(), later
	}
	return f.readyCondition(p), regularly
}

// handleError decides whether an error stops a running reflection.
func (f *Follower) handleError(name string, err error) (condition, again) {
	var obstacle *fault
	if !errors.As(err, &obstacle) || obstacle.unserved {
		return f.stopForError(name, err)
	}
	switch {
	// The resource may be served in a moment, because an API server that has just started adds resources to discovery
	// one after the other.
	case obstacle.shortly:
		return obstacle.toCondition(), shortly
	case obstacle.reason == pluginsv1alpha1.UnreachableReason, obstacle.reason == pluginsv1alpha1.MissingPermissionReason:
		return obstacle.toCondition(), later
	default:
		return f.stopForError(name, err)
	}
}

// stopForError stops the reflection, because the spec cannot be applied.
func (f *Follower) stopForError(name string, err error) (condition, again) {
	f.stopReflection(name)
	var obstacle *fault
	if !errors.As(err, &obstacle) {
		obstacle = &fault{reason: pluginsv1alpha1.NotReflectableReason, message: err.Error()}
	}
	switch {
	case obstacle.shortly:
		return obstacle.toCondition(), shortly
	case obstacle.final:
		return obstacle.toCondition(), regularly
	default:
		return obstacle.toCondition(), later
	}
}

// readyCondition returns the condition of a reflection without problems.
func (f *Follower) readyCondition(p plan) condition {
	message := p.source.GroupResource().String() + " are reflected to cluster " + f.options.RemoteClusterID
	if p.target != p.source {
		message += " as " + p.target.GroupResource().String() + " " + p.target.Version
	}
	if len(f.options.Engine.Namespaces()) == 0 {
		message += ", as soon as a namespace is offloaded to it"
	}
	return condition{ready: true, reason: pluginsv1alpha1.ReflectingReason, message: message}
}
