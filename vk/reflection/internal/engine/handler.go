// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/internal/policy"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// Handler implements the lifecycle of a kind that is more than mutated and copied. Kinds without one use Base, which is sufficient
// for most of them; a Handler embeds it and overrides methods. Its methods are called by several goroutines, Reconcile
// by one at a time for each object.
type Handler interface {
	// Reconcile makes what is on the other side of one object what it should be. It is called when the scope is ready, and, of
	// kinds that are not PerNode or Reverse, when this virtual kubelet leads.
	Reconcile(ctx context.Context, w *Worker, s *Scope, key Key) error
	// NotOffloaded reconciles an object whose namespace is not offloaded.
	NotOffloaded(ctx context.Context, w *Worker, key Key) error
	// Decide reports whether an object is to cross, and why not.
	Decide(s *Scope, object *unstructured.Unstructured) (policy.Verdict, error)
	// Context returns an additional field of the plugins' context of an object, on which its copy depends. There
	// is none when the value is empty.
	Context(s *Scope, object *unstructured.Unstructured) (field string, value map[string]any)
	// Extend adds watches of the kind in a namespace, in addition to its objects and their copies. It is called before anything runs.
	Extend(s *Scope)
	// Run works in the background, until ctx ends.
	Run(ctx context.Context)
	// Synced is called when a kind, this or another, has been read in a namespace; s is the scope of this one there.
	Synced(s *Scope, kind *Kind)
	// StartedLeading is called when this virtual kubelet begins to lead, after every object was enqueued.
	StartedLeading()
	// NamespacesChanged is called when other namespaces are offloaded than before.
	NamespacesChanged()
	// ObjectMatters reports whether an object of this cluster, or of this node, is to be enqueued for having changed.
	ObjectMatters(before, object *unstructured.Unstructured) bool
	// CopyMatters reports the same of a copy. Deletions always matter.
	CopyMatters(before, copied *unstructured.Unstructured) bool
	// Derived returns what the provider's controllers have made of the copy with that name, as far as that is watched.
	Derived(s *Scope, name string) *unstructured.Unstructured
	// Waiting counts what will be enqueued later by itself.
	Waiting() int
}

// Base is the Handler of kinds without their own lifecycle.
type Base struct{ *Env }

// Reconcile implements Handler: it applies policy and chain to the object, and reflects its status back.
func (b Base) Reconcile(ctx context.Context, w *Worker, s *Scope, key Key) error {
	return b.r.reconcile(ctx, w, s, key)
}

// NotOffloaded implements Handler: unoffloading cleans up the provider.
func (Base) NotOffloaded(context.Context, *Worker, Key) error { return nil }

// Decide implements Handler: it asks the policy of the kind.
func (b Base) Decide(_ *Scope, object *unstructured.Unstructured) (policy.Verdict, error) {
	kind := &b.r.kind
	if kind.Unless != nil && kind.Unless(object.GetName()) {
		return policy.DecideExplicit(raw.Annotations(object.Object))
	}
	return kind.Policy.Decide(raw.Annotations(object.Object))
}

// Context implements Handler.
func (Base) Context(*Scope, *unstructured.Unstructured) (string, map[string]any) { return "", nil }

// Extend implements Handler.
func (Base) Extend(*Scope) {}

// Run implements Handler.
func (Base) Run(context.Context) {}

// Synced implements Handler.
func (Base) Synced(*Scope, *Kind) {}

// StartedLeading implements Handler.
func (Base) StartedLeading() {}

// NamespacesChanged implements Handler.
func (Base) NamespacesChanged() {}

// ObjectMatters implements Handler.
func (Base) ObjectMatters(_, _ *unstructured.Unstructured) bool { return true }

// CopyMatters implements Handler.
func (Base) CopyMatters(_, _ *unstructured.Unstructured) bool { return true }

// Derived implements Handler.
func (Base) Derived(*Scope, string) *unstructured.Unstructured { return nil }

// Waiting implements Handler.
func (Base) Waiting() int { return 0 }

var _ Handler = Base{}

// Peer returns the handler that implements T. Kinds do not know each other: what one needs of another is an
// interface that it declares, and the package that lists the kinds asserts that a handler implements it. None is found when its
// kind is not reflected. It is for use after New has made all handlers.
func Peer[T any](e *Env) (peer T, ok bool) {
	for _, r := range e.r.m.all() {
		if peer, ok = r.handler.(T); ok {
			return peer, true
		}
	}
	return peer, false
}
