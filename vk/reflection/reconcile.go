// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/policy"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// reconcileObject makes the copy of one object what the chain says, and nothing else.
func (r *reflector) reconcileObject(ctx context.Context, w *worker, key Key) error {
	t := r.m.extension(key.Namespace)
	if t == nil || !r.kind.PerNode && !r.m.leading.Load() {
		return nil
	}
	c := t.of(r.kind.Name)
	if c == nil || !c.ready.Load() {
		return nil
	}
	local := r.localObject(c, key)
	remote, going := r.remoteObject(c, t, key.Name)
	if going {
		return nil
	}
	if local == nil {
		c.memory.Forget(key)
		r.statuses.Forget(key)
		r.paces.forget(key)
		return r.remove(ctx, w, t, c, remote)
	}
	if r.kind.Never != nil && r.kind.Never(local) {
		return nil
	}
	r.misspelt(w, local)
	decided, err := r.decide(c, local)
	if err != nil {
		return err
	}
	if !decided.Cross {
		return r.disable(ctx, w, t, c, local, remote, decided.Explicit, decided.Reason)
	}
	outcome, err := r.mutate(ctx, w, host.Outgoing, key.Namespace, local.Object, r.outgoing(t, c, local))
	if err != nil {
		return err
	}
	r.warnings(w, local, outcome)
	if outcome.Skipped {
		if outcome.Skipper == r.kind.RoutineSkipper {
			return r.remove(ctx, w, t, c, remote)
		}
		return r.disable(ctx, w, t, c, local, remote, true, fmt.Sprintf("plugin %s: %s", outcome.Skipper, outcome.SkipReason))
	}
	if err := r.converge(ctx, w, t, c, local, remote); err != nil {
		return err
	}
	switch {
	case r.kind.Mute:
		err = r.retractStatus(ctx, w, local)
	case r.kind.StatusBack:
		err = r.bringStatus(ctx, w, t, c, local)
	}
	if err != nil {
		return err
	}
	if !w.warned {
		r.m.events.OK(r.kind.Name, local.GetUID())
	}
	return nil
}

// disable removes the copy of an object that is kept at home on purpose: by an annotation, by the policy, or by the
// skip of a plugin. It is told once, and not about what has never crossed and was there before this process.
func (r *reflector) disable(ctx context.Context, w *worker, t *extension, c *copies, local, remote *unstructured.Unstructured, explicit bool, reason string) error {
	if remote != nil {
		if err := r.remove(ctx, w, t, c, remote); err != nil {
			return err
		}
	}
	if r.kind.StatusBack {
		if err := r.retractStatus(ctx, w, local); err != nil {
			return err
		}
	}
	if remote != nil || explicit && local.GetCreationTimestamp().After(r.m.started) {
		r.m.events.Note(r.kind.Name, local, wire.ReflectionDisabledReason, fmt.Sprintf("not reflected to cluster %s: %s", r.m.options.RemoteClusterID, reason))
	}
	return nil
}

// localObject returns the object of this cluster, at least as new as our last write to it.
func (r *reflector) localObject(c *copies, key Key) *unstructured.Unstructured {
	object, _ := r.localWrites.View(key, informer.Get(c.local, key.Namespace, key.Name))
	return object
}

// remoteObject returns our copy, at least as new as our last write; going while its deletion by us is under way.
func (r *reflector) remoteObject(c *copies, t *extension, name string) (object *unstructured.Unstructured, going bool) {
	return c.writes.View(Key{Namespace: t.local, Name: name}, informer.Get(c.informer, t.remote, r.remoteName(name)))
}

// mutate runs the chain of the hook on an object; the result is in the worker's document.
func (r *reflector) mutate(ctx context.Context, w *worker, hook host.Hook, namespace string, object, context map[string]any) (*host.Outcome, error) {
	w.doc.Reset(object)
	w.env.Context, w.env.RemapIP = context, r.m.remapper(namespace, hook)
	w.env.Domain = namespace
	if r.kind.Confidential {
		metadata, _ := object["metadata"].(map[string]any)
		w.env.Domain = fmt.Sprintf("%s/%v", namespace, metadata["uid"])
	}
	outcome, err := r.m.options.Registry.Run(ctx, r.chain, hook, w.doc, &w.env)
	if outcome != nil {
		r.m.metrics.ran(r.kind.Name, hook, outcome)
	}
	return outcome, err
}

// warnings turns what plugins warn of into Events.
func (r *reflector) warnings(w *worker, local *unstructured.Unstructured, outcome *host.Outcome) {
	for _, warning := range outcome.Warnings {
		w.warned = true
		r.m.events.Warn(r.kind.Name, local, PluginWarningReason, fmt.Sprintf("plugin %s: %s", warning.Plugin, warning.Message))
	}
}

// decide asks the policy, and what never crosses.
func (r *reflector) decide(c *copies, local *unstructured.Unstructured) (policy.Verdict, error) {
	switch {
	case r.kind.FollowsService:
		return r.kind.Policy.DecideSlice(raw.Annotations(local.Object), func() (map[string]any, bool) {
			service := informer.Get(c.services, local.GetNamespace(), serviceOf(local))
			if service == nil {
				return nil, false
			}
			return raw.Annotations(service.Object), true
		})
	case r.kind.Unless != nil && r.kind.Unless(local.GetName()):
		return policy.DecideExplicit(raw.Annotations(local.Object))
	}
	return r.kind.Policy.Decide(raw.Annotations(local.Object))
}
