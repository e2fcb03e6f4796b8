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
	// StartKind begins to reflect a kind in every offloaded namespace, or replaces one of the same name.
	StartKind(kind reflection.Kind) error
	// StopKind stops it and returns when nothing of it runs. Nothing is deleted on the provider.
	StopKind(name string)
	// Namespaces returns the offloaded namespaces, each with its remote namespace.
	Namespaces() map[string]string
	// NamespacesKnown is closed when those have been read. Kinds are taken from then on.
	NamespacesKnown() <-chan struct{}
	// SubscribeNamespaces has changed called after they have, until cancel is called. It does not block.
	SubscribeNamespaces(changed func()) (cancel func())
	// Reachable reports whether the provider answered last time.
	Reachable() bool
}

// Chains has plugin chains for kinds that are added and removed at run time, such as a *source.Chains.
type Chains interface {
	// AddKind builds the chains of a kind, whose objects have the specs of pods at these paths; nothing happens when there
	// are some.
	AddKind(kind string, podSpecs ...string) error
	// RemoveKind drops them.
	RemoveKind(kind string)
}

// plan is all that makes a difference to the engine: two that are equal are one reflection.
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

// with takes over what needs no further request to the clusters.
func (p plan) with(spec *pluginsv1alpha1.ReflectedResourceSpec) plan {
	p.policy, p.workers, p.statusBack = reflection.Policy(spec.Policy), int(*spec.Workers), spec.StatusBack
	p.podSpecs = strings.Join(spec.PodSpecPaths, "\n")
	return p
}

// patched is what is patched here: the status, and the annotation that names its owner.
func (p plan) patched() []string {
	switch {
	case !p.statusBack:
		return nil
	case p.statusSubresource:
		return []string{p.source.Resource, p.source.Resource + "/status"}
	default:
		return []string{p.source.Resource}
	}
}

// reflected is the plan as the engine takes it.
func (p plan) reflected() reflection.Kind {
	kind := reflection.Kind{Name: p.kind, Source: p.source, Policy: p.policy, Workers: p.workers, Tracked: true}
	kind.Status.Back, kind.Status.Subresource = p.statusBack, p.statusSubresource
	if p.target != p.source {
		kind.Copy.GVR, kind.Copy.GVK = p.target, p.targetKind
	}
	return kind
}

// podSpecPaths are for the guard of the kind's chains.
func (p plan) podSpecPaths() []string {
	if p.podSpecs == "" {
		return nil
	}
	return strings.Split(p.podSpecs, "\n")
}

// start has the engine reflect as planned, unless it does already.
func (f *Follower) start(name string, p plan) error {
	f.mu.Lock()
	old, runs := f.running[name]
	for other, taken := range f.running {
		if other != name && (taken.kind == p.kind || taken.target.GroupResource() == p.target.GroupResource()) {
			f.mu.Unlock()
			return notReflectable("%s are written to %s already, by ReflectedResource %s: each would remove the copies of the other", p.target.GroupResource(), f.remote, other)
		}
	}
	f.running[name] = plan{kind: p.kind, target: p.target} // until it is known to run
	f.mu.Unlock()
	if runs && old == p {
		f.keep(name, p)
		return nil
	}
	if runs && old.kind != p.kind {
		f.halt(old.kind)
	}
	if f.options.Chains != nil {
		if err := f.options.Chains.AddKind(p.kind, p.podSpecPaths()...); err != nil {
			return fmt.Errorf("making the plugin chains of %s, %w", p.kind, err)
		}
	}
	if err := f.options.Engine.StartKind(p.reflected()); err != nil {
		return fmt.Errorf("starting the reflection of %s, %w", p.kind, err)
	}
	f.keep(name, p)
	f.log.Info("A resource is reflected", "resource", name, "kind", p.kind, "to", p.target.String(), "policy", string(p.policy), "workers", p.workers, "statusBack", p.statusBack)
	return nil
}

func (f *Follower) keep(name string, p plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running[name] = p
}

// adjust gives a reflection that runs the settings for which neither cluster has to be asked, before they are: what is not
// to be reflected any more does not wait for an answer.
func (f *Follower) adjust(name string, spec *pluginsv1alpha1.ReflectedResourceSpec) {
	f.mu.Lock()
	p, runs := f.running[name]
	f.mu.Unlock()
	if !runs || p.source != spec.GroupVersionResource() || p.target != target(spec) {
		return
	}
	adjusted := p.with(spec)
	adjusted.statusBack = p.statusBack && spec.StatusBack // to begin with that takes a permission
	if adjusted == p {
		return
	}
	if err := f.start(name, adjusted); err != nil {
		f.log.Warn("Resource is not fully reflected", "resource", name, "err", err)
	}
}

// stop ends the reflection. The copies stay.
func (f *Follower) stop(name string) {
	f.mu.Lock()
	p, runs := f.running[name]
	f.mu.Unlock()
	if !runs {
		return
	}
	f.halt(p.kind)
	f.mu.Lock()
	delete(f.running, name)
	f.mu.Unlock()
	f.log.Info("A resource is no longer reflected", "resource", name, "kind", p.kind)
}

func (f *Follower) halt(kind string) {
	f.options.Engine.StopKind(kind)
	if f.options.Chains != nil {
		f.options.Chains.RemoveKind(kind)
	}
}
