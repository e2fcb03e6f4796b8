// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
)

// reconcile applies the chain to one object, writes its copy, and reflects the status of the copy back. The status of
// the existing copy is reflected even if a plugin fails or the provider refuses the update.
func (r *reflector) reconcile(ctx context.Context, w *Worker, s *Scope, key Key) error {
	local := s.Object(key)
	if owner := r.localName(r.remoteName(key.Name)); owner != key.Name {
		return r.leaveOut(s, local, owner)
	}
	remote, going := s.Copy(key.Name)
	if going {
		return nil
	}
	if local == nil {
		s.forget(key)
		return w.removed(r.remove(ctx, w, s, remote))
	}
	if r.kind.Never != nil && r.kind.Never(local) {
		return w.removed(nil)
	}
	r.misspelt(w, local)
	goesOn, sent := r.reconcileCopy(ctx, w, s, local, remote)
	if !goesOn {
		return sent
	}
	shown := r.reconcileStatus(ctx, w, s, local)
	if sent == nil && shown == nil && !w.Warned {
		r.m.events.OK(r.kind.Name, local.GetUID())
	}
	return Directed(sent, shown)
}

// reconcileCopy applies the chain to an object and writes its copy. goesOn reports whether the object has a copy whose
// status is reflected.
func (r *reflector) reconcileCopy(ctx context.Context, w *Worker, s *Scope, local, remote *unstructured.Unstructured) (goesOn bool, err error) {
	decided, err := r.handler.Decide(s, local)
	if err != nil {
		return true, err
	}
	if !decided.Cross {
		return false, w.removed(r.disable(ctx, w, s, local, remote, decided.Explicit, decided.Reason))
	}
	whole, err := r.whole(ctx, local)
	if err != nil || whole == nil {
		return err != nil, err
	}
	if whole != local { // whole may be newer than local: nothing changes on doubt until the watch delivers it
		if decided, err := r.handler.Decide(s, whole); err != nil || !decided.Cross {
			return false, nil
		}
		local = whole
	}
	outcome, err := r.mutate(ctx, w, host.Outgoing, local.GetNamespace(), local.Object, s.outgoing(local))
	if err != nil {
		return true, err
	}
	r.warnings(w, local, outcome)
	if outcome.Skipped {
		if outcome.Skipper == r.kind.Chain.RoutineSkipper {
			return false, w.removed(r.remove(ctx, w, s, remote))
		}
		return false, w.removed(r.disable(ctx, w, s, local, remote, true, fmt.Sprintf("plugin %s: %s", outcome.Skipper, outcome.SkipReason)))
	}
	if err := r.converge(ctx, w, s, local, remote); err != nil {
		return true, err
	}
	w.converged(remote)
	return true, nil
}

// reconcileStatus reflects the status of the copy back, or removes a reflected status if the kind no longer reflects
// statuses.
func (r *reflector) reconcileStatus(ctx context.Context, w *Worker, s *Scope, local *unstructured.Unstructured) error {
	switch {
	case r.mute:
		return r.retractStatus(ctx, w, local)
	case !r.kind.Status.Back:
		return nil
	}
	return r.writeStatusBack(ctx, w, s, local)
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
	return &ReservedNameError{kind: r.kind.SourceKind().Kind, name: local.GetName(), owner: owner}
}

// disable removes the copy of an object that is deliberately not reflected: by an annotation, by the policy, or because
// a plugin skips it. One Event reports this, except for an object that never crossed and existed before this process.
func (r *reflector) disable(ctx context.Context, w *Worker, s *Scope, local, remote *unstructured.Unstructured, explicit bool, reason string) error {
	if remote != nil {
		if err := r.remove(ctx, w, s, remote); err != nil {
			return err
		}
	}
	if r.kind.Status.Back {
		if err := r.retractStatus(ctx, w, local); err != nil {
			return err
		}
	}
	if remote != nil || explicit && local.GetCreationTimestamp().After(r.m.started) {
		r.m.events.Note(r.kind.Name, local, wire.ReflectionDisabledReason, fmt.Sprintf("not reflected to cluster %s: %s", r.m.options.RemoteClusterID, reason))
	}
	return nil
}

// forget drops the remembered state of a deleted object.
func (s *Scope) forget(key Key) {
	s.fights.DropKey(key)
	s.accepted.forget(key)
	s.r.forget(key)
}

func (r *reflector) forget(key Key) {
	r.statuses.forget(key)
	r.strangers.forget(key)
	r.shown.DropKey(key)
	r.partRetries.Forget(key)
	r.pluginRetries.forget(key)
	r.paces.forget(key)
}

// mutate runs the chain of the hook on an object. The result is in the worker's document.
func (r *reflector) mutate(ctx context.Context, w *Worker, hook host.Hook, namespace string, object, context map[string]any) (*host.Outcome, error) {
	w.Doc.Reset(object)
	w.env.Context, w.env.RemapIP = context, r.m.remapper(namespace, hook)
	w.env.Domain = namespace
	if r.kind.Chain.Confidential {
		metadata, _ := object["metadata"].(map[string]any)
		w.env.Domain = fmt.Sprintf("%s/%v", namespace, metadata["uid"])
	}
	outcome, err := r.m.options.Registry.Run(ctx, r.kind.Name, hook, w.Doc, &w.env)
	w.chains.record(hook, outcome)
	if outcome != nil {
		r.m.metrics.ran(r.kind.Name, hook, outcome)
	}
	return outcome, err
}

// warnings reports the warnings of plugins and of the guard in Events.
func (r *reflector) warnings(w *Worker, local *unstructured.Unstructured, outcome *host.Outcome) {
	for _, warning := range outcome.Warnings {
		w.Warned = true
		message := warning.Message
		if warning.Plugin != "" {
			message = fmt.Sprintf("plugin %s: %s", warning.Plugin, message)
		}
		r.m.events.Warn(r.kind.Name, local, PluginWarningReason, message)
	}
}
