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

// Engine reflects kinds that can be added and removed at run time. *reflection.Manager implements it.
type Engine interface {
	// StartKind starts the reflection of a kind in every offloaded namespace. If a kind with this name is already
	// reflected, it is replaced.
	StartKind(kind reflection.Kind) error
	// StopKind stops the reflection of a kind, and returns when all goroutines of the kind have ended. The objects on
	// the provider are kept.
	StopKind(name string)
	// Namespaces returns the offloaded namespaces, each with its remote namespace.
	Namespaces() map[string]string
	// NamespacesKnown returns a channel that is closed when the offloaded namespaces have been read. From then on,
	// kinds can be started.
	NamespacesKnown() <-chan struct{}
	// SubscribeNamespaces registers a function that is called after each change of the offloaded namespaces until
	// cancel is called. SubscribeNamespaces does not block.
	SubscribeNamespaces(changed func()) (cancel func())
	// Reachable reports whether the provider counts as reachable.
	Reachable() bool
}

// Chains builds the plugin chains of kinds that can be added and removed at run time. *source.Chains implements it.
type Chains interface {
	// AddKind builds the chains of a kind. podSpecs are the paths of pod specs in its objects. If the chains exist,
	// AddKind has no effect.
	AddKind(kind string, podSpecs ...string) error
	// RemoveKind removes the chains of a kind.
	RemoveKind(kind string)
}

// plan contains all settings of a reflection that the engine needs. A reflection is not restarted as long as its plan
// does not change.
type plan struct {
	kind              string // name of the kind and of its chains, for example "Certificate.cert-manager.io"
	source, target    schema.GroupVersionResource
	targetKind        schema.GroupVersionKind
	policy            reflection.Policy
	workers           int
	statusBack        bool
	statusSubresource bool
	podSpecs          string // paths of pod specs, separated by newlines
}

// withSettings returns the plan with the settings of spec that can be applied without a request to the clusters.
func (p plan) withSettings(spec *pluginsv1alpha1.ReflectedResourceSpec) plan {
	p.policy, p.workers, p.statusBack = reflection.Policy(spec.Policy), int(*spec.Workers), spec.StatusBack
	p.podSpecs = strings.Join(spec.PodSpecPaths, "\n")
	return p
}

// patchedResources returns the local resources that are patched when the status is reflected: the status itself, and
// the object, because one of its annotations contains the owner of the status.
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

// podSpecPaths returns the paths of pod specs in objects of the kind, for the guard in the kind's chains.
func (p plan) podSpecPaths() []string {
	if p.podSpecs == "" {
		return nil
	}
	return strings.Split(p.podSpecs, "\n")
}

// startReflection starts the planned reflection unless it is already running.
func (f *Follower) startReflection(name string, p plan) error {
	f.mu.Lock()
	old, runs := f.running[name]
	for other, taken := range f.running {
		if other != name && (taken.kind == p.kind || taken.target.GroupResource() == p.target.GroupResource()) {
			f.mu.Unlock()
			return notReflectable("%s are written to %s already, by ReflectedResource %s: each would remove the copies of the other", p.target.GroupResource(), f.remote, other)
		}
	}
	// Only the names are recorded now. The rest of the plan is recorded after the engine has started the kind.
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

// adjustReflection changes those settings of a running reflection that need no request to the clusters. It runs before
// any request is sent, so that objects that are no longer selected are removed even if a cluster does not respond.
func (f *Follower) adjustReflection(name string, spec *pluginsv1alpha1.ReflectedResourceSpec) {
	f.mu.Lock()
	p, runs := f.running[name]
	f.mu.Unlock()
	if !runs || p.source != spec.GroupVersionResource() || p.target != targetResource(spec) {
		return
	}
	adjusted := p.withSettings(spec)
	// The reflection of the status can be stopped here, but not started, because starting it requires a permission that
	// is checked later.
	adjusted.statusBack = p.statusBack && spec.StatusBack
	if adjusted == p {
		return
	}
	if err := f.startReflection(name, adjusted); err != nil {
		f.log.Warn("Resource is not fully reflected", "resource", name, "err", err)
	}
}

// stopReflection stops the reflection. The remote objects are kept.
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
