// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/vk/reflection"
)

// Engine reflects kinds that are added and removed at run time, such as a *reflection.Manager.
type Engine interface {
	// StartKind begins to reflect a kind in every offloaded namespace, or replaces the kind of the same name.
	StartKind(kind reflection.Kind) error
	// StopKind stops the reflection of a kind and returns when none of its work runs. Nothing is deleted on the
	// provider.
	StopKind(name string)
	// Namespaces returns the offloaded namespaces, each with its remote namespace.
	Namespaces() map[string]string
	// NamespacesKnown returns a channel that is closed when the namespaces were read. Kinds are accepted from then on.
	NamespacesKnown() <-chan struct{}
	// SubscribeNamespaces registers changed, which is called after each change of the namespaces until cancel is
	// called. It does not block.
	SubscribeNamespaces(changed func()) (cancel func())
	// Reachable reports whether the last call to the provider succeeded.
	Reachable() bool
}

// Chains builds the plugin chains of kinds that are added and removed at run time, such as a *source.Chains.
type Chains interface {
	// AddKind builds the chains of a kind, whose objects have pod specs at these paths. It does nothing if the chains
	// exist.
	AddKind(kind string, podSpecs ...string) error
	// RemoveKind removes the chains of a kind.
	RemoveKind(kind string)
}

// plan has all settings that matter to the engine: two equal plans are the same reflection.
type plan struct {
	kind              string // name of the kind and of its chains, "Certificate.cert-manager.io"
	source, target    schema.GroupVersionResource
	targetKind        schema.GroupVersionKind
	policy            reflection.Policy
	workers           int
	statusBack        bool
	statusSubresource bool
	podSpecs          string // paths, separated by newlines
}

// withSettings returns the plan with the settings of spec that need no further request to the clusters.
func (p plan) withSettings(spec *pluginsv1alpha1.ReflectedResourceSpec) plan {
	p.policy, p.workers, p.statusBack = reflection.Policy(spec.Policy), int(*spec.Workers), spec.StatusBack
	p.podSpecs = strings.Join(spec.PodSpecPaths, "\n")
	return p
}

// patchedResources returns the local resources that are patched: the status, and the object for the annotation that names the
// owner of its status.
func (p plan) patchedResources() []string {
	switch {
	case !p.statusBack:
		return nil
	case p.statusSubresource:
		return []string{p.source.Resource, p.source.Resource + "/status"}
	default:
		return []string{p.source.Resource}
	}
}

// reflectedKind converts the plan to the engine's type.
func (p plan) reflectedKind() reflection.Kind {
	kind := reflection.Kind{Name: p.kind, Source: p.source, Policy: p.policy, Workers: p.workers, Tracked: true}
	kind.Status.Back, kind.Status.Subresource = p.statusBack, p.statusSubresource
	if p.target != p.source {
		kind.Copy.GVR, kind.Copy.GVK = p.target, p.targetKind
	}
	return kind
}

// podSpecPaths returns the paths of pod specs for the guard of the kind's chains.
func (p plan) podSpecPaths() []string {
	if p.podSpecs == "" {
		return nil
	}
	return strings.Split(p.podSpecs, "\n")
}

// startReflection starts the planned reflection unless it runs already.
func (f *Follower) startReflection(name string, p plan) error {
	f.mu.Lock()
	old, runs := f.running[name]
	for other, taken := range f.running {
		if other != name && (taken.kind == p.kind || taken.target.GroupResource() == p.target.GroupResource()) {
			f.mu.Unlock()
			return notReflectable("%s are written to %s already, by ReflectedResource %s: each would remove the copies of the other", p.target.GroupResource(), f.remote, other)
		}
	}
	// The rest of the plan is recorded when the kind is known to run.
	f.running[name] = plan{kind: p.kind, target: p.target}
	f.mu.Unlock()
	if runs && old == p {
		f.recordPlan(name, p)
		return nil
	}
	if runs && old.kind != p.kind {
		f.stopKind(old.kind)
	}
	if f.options.Chains != nil {
		if err := f.options.Chains.AddKind(p.kind, p.podSpecPaths()...); err != nil {
			return fmt.Errorf("making the plugin chains of %s, %w", p.kind, err)
		}
	}
	if err := f.options.Engine.StartKind(p.reflectedKind()); err != nil {
		return fmt.Errorf("starting the reflection of %s, %w", p.kind, err)
	}
	f.recordPlan(name, p)
	f.log.Info("A resource is reflected", "resource", name, "kind", p.kind, "to", p.target.String(), "policy", string(p.policy), "workers", p.workers, "statusBack", p.statusBack)
	return nil
}

func (f *Follower) recordPlan(name string, p plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running[name] = p
}

// adjustReflection applies the settings that need no request to the clusters to a running reflection, before any request is sent:
// objects that are no longer selected are dropped even while a cluster does not respond.
func (f *Follower) adjustReflection(name string, spec *pluginsv1alpha1.ReflectedResourceSpec) {
	f.mu.Lock()
	p, runs := f.running[name]
	f.mu.Unlock()
	if !runs || p.source != spec.GroupVersionResource() || p.target != targetResource(spec) {
		return
	}
	adjusted := p.withSettings(spec)
	// Starting to reflect the status requires a permission, which is checked later.
	adjusted.statusBack = p.statusBack && spec.StatusBack
	if adjusted == p {
		return
	}
	if err := f.startReflection(name, adjusted); err != nil {
		f.log.Warn("Resource is not fully reflected", "resource", name, "err", err)
	}
}

// stopReflection ends the reflection. The remote objects stay.
func (f *Follower) stopReflection(name string) {
	f.mu.Lock()
	p, runs := f.running[name]
	f.mu.Unlock()
	if !runs {
		return
	}
	f.stopKind(p.kind)
	f.mu.Lock()
	delete(f.running, name)
	f.mu.Unlock()
	f.log.Info("A resource is no longer reflected", "resource", name, "kind", p.kind)
}

func (f *Follower) stopKind(kind string) {
	f.options.Engine.StopKind(kind)
	if f.options.Chains != nil {
		f.options.Chains.RemoveKind(kind)
	}
}
