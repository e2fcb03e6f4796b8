// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/mutation"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
)

// reconcile applies the chain to one object, writes its copy, and reflects the status of the copy back. The status of
// the existing copy is reflected even if a plugin fails or the provider refuses the update.
func (r *reflector) reconcile(ctx context.Context, w *evaluation.Worker, s *Scope, key queue.Key) error {
	local := s.Object(key)
	if owner := r.copies.LocalName(r.copies.RemoteName(key.Name)); owner != key.Name {
		return r.leaveOut(s, local, owner)
	}
	remote, going := s.Copy(key.Name)
	if going {
		return nil
	}
	if local == nil {
		s.Forget(key)
		return w.Removed(r.copies.Remove(ctx, w, s.Namespace, remote), "")
	}
	if r.kind.Never != nil && r.kind.Never(local) {
		return w.Removed(nil, "it belongs to this cluster")
	}
	r.mutator.CheckAnnotations(w, local)
	goesOn, sent := r.reconcileCopy(ctx, w, s, local, remote)
	if !goesOn {
		return sent
	}
	shown := r.reconcileStatus(ctx, w, s, local)
	if sent == nil && shown == nil && !w.Warned {
		r.events.OK(local.GetUID())
	}
	return evaluation.Directed(sent, shown)
}

// reconcileCopy applies the chain to an object and writes its copy. goesOn reports whether the object has a copy whose
// status is reflected.
func (r *reflector) reconcileCopy(ctx context.Context, w *evaluation.Worker, s *Scope, local, remote *unstructured.Unstructured) (goesOn bool, err error) {
	decided, err := r.handler.Decide(s, local)
	if err != nil {
		return true, err
	}
	if !decided.Cross {
		r.mutator.Release(local.GetNamespace(), local.GetName())
		return false, w.Removed(r.disable(ctx, w, s, local, remote, decided.Explicit, decided.Reason), decided.Reason)
	}
	whole, err := r.objects.Whole(ctx, local)
	if err != nil || whole == nil {
		return err != nil, err
	}
	// The object from the API server may be newer than the cached one. If in doubt, nothing is changed, because the
	// watch will deliver the newer object.
	if whole != local {
		if decided, err := r.handler.Decide(s, whole); err != nil || !decided.Cross {
			return false, nil
		}
		local = whole
	}
	in := &mutation.Input{Object: local.Object, Context: s.outgoing(local)}
	outcome, err := r.mutator.Mutate(ctx, w, host.Outgoing, local.GetNamespace(), local.Object, in)
	if err != nil {
		return true, err
	}
	r.mutator.Warnings(w, local, outcome)
	if outcome.Skipped {
		if remote != nil {
			if err := r.env.MayRemove(ctx, w, host.Outgoing, s, local, in); err != nil {
				return true, err
			}
		}
		why := fmt.Sprintf("plugin %s: %s", outcome.Skipper, outcome.SkipReason)
		if outcome.Skipper == r.kind.Chain.RoutineSkipper {
			return false, w.Removed(r.copies.Remove(ctx, w, s.Namespace, remote), why)
		}
		return false, w.Removed(r.disable(ctx, w, s, local, remote, true, why), why)
	}
	if err := r.copies.Converge(ctx, w, s.Namespace, local, remote); err != nil {
		return true, err
	}
	w.Converged(remote)
	return true, nil
}

// reconcileStatus reflects the status of the copy back, or removes a reflected status if the kind no longer reflects
// statuses.
func (r *reflector) reconcileStatus(ctx context.Context, w *evaluation.Worker, s *Scope, local *unstructured.Unstructured) error {
	switch {
	case r.mute:
		return r.objects.RetractStatus(ctx, w, local)
	case !r.kind.Status.Back:
		return nil
	}
	return r.showStatus(ctx, w, s, local)
}

// leaveOut reports that an object is not reflected because the name of its copy is reserved for the copy of another
// object, the owner, whether or not the owner exists. The copy of the owner is neither changed nor deleted, because
// offloaded pods refer to it.
func (r *reflector) leaveOut(s *Scope, local *unstructured.Unstructured, owner string) error {
	if local == nil {
		return nil
	}
	if decided, err := r.handler.Decide(s, local); err != nil || !decided.Cross {
		return err
	}
	return &failure.ReservedNameError{Kind: r.kind.SourceKind().Kind, Name: local.GetName(), Owner: owner}
}

// disable removes the copy of an object that is deliberately not reflected: by an annotation, by the policy, or because
// a plugin skips it. One Event reports this, except for an object that was never reflected and existed before this
// process. The reflected status is removed even if the provider refuses the deletion.
func (r *reflector) disable(ctx context.Context, w *evaluation.Worker, s *Scope, local, remote *unstructured.Unstructured, explicit bool, reason string) error {
	removed, retracted := r.copies.Remove(ctx, w, s.Namespace, remote), error(nil)
	if r.kind.Status.Back {
		retracted = r.objects.RetractStatus(ctx, w, local)
	}
	if err := evaluation.Directed(removed, retracted); err != nil {
		return err
	}
	if remote != nil || explicit && local.GetCreationTimestamp().After(r.m.started) {
		r.events.Note(local, wire.ReflectionDisabledReason, fmt.Sprintf("not reflected to cluster %s: %s", r.m.options.RemoteClusterID, reason))
	}
	return nil
}

// showStatus reflects the status of the copy back.
func (r *reflector) showStatus(ctx context.Context, w *evaluation.Worker, s *Scope, local *unstructured.Unstructured) error {
	remote, going := s.Copy(local.GetName())
	if remote == nil || going || local.GetDeletionTimestamp() != nil || copies.StandsForAnother(remote, local) {
		return nil
	}
	return r.objects.ShowStatus(ctx, w, local, remote, func() (map[string]any, error) {
		status, err := r.mutator.IncomingStatus(ctx, w, s.Context(host.Incoming), local, remote)
		if err != nil || status == nil || r.kind.Shown == nil {
			return status, err
		}
		return r.kind.Shown(r.env, w, local, status), nil
	})
}
