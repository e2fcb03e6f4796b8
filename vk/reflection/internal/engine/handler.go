// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/internal/reflectionpolicy"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/mutation"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// Handler implements the lifecycle of a kind that needs more than mutating and copying. Kinds without a handler use
// Base, which is sufficient for most of them. A Handler embeds Base and overrides methods. Its methods are called by
// several goroutines; for each object, only one goroutine at a time calls Reconcile.
type Handler interface {
	// Reconcile brings the other side of one object into its desired state. It is called when the scope is ready and,
	// unless the kind is PerNode or Reverse, while this virtual kubelet leads.
	Reconcile(ctx context.Context, w *evaluation.Worker, s *Scope, key queue.Key) error
	// NotOffloaded reconciles an object whose namespace is not offloaded.
	NotOffloaded(ctx context.Context, w *evaluation.Worker, key queue.Key) error
	// Decide returns whether an object must be reflected and, if it must not, the reason.
	Decide(s *Scope, object *unstructured.Unstructured) (reflectionpolicy.Verdict, error)
	// Context returns an additional field of an object's context for plugins. The copy of the object depends on it. An
	// empty value adds no field.
	Context(s *Scope, object *unstructured.Unstructured) (field string, value map[string]any)
	// Inputs returns the inputs of the chains of an object that is not being deleted, as Reconcile passes them to
	// Mutate. It must change nothing, must not unpack cached objects (see Scope.PeekCopy), and may be called while
	// another goroutine reconciles the object.
	Inputs(s *Scope, local *unstructured.Unstructured) ChainInputs
	// Extend adds watches of the kind in a namespace, in addition to its objects and their copies. It is called before
	// the informers of the scope run.
	Extend(s *Scope)
	// Run runs in the background until ctx ends.
	Run(ctx context.Context)
	// Synced is called when a kind, which may be this one, has been read in a namespace. s is the scope of this kind in
	// the namespace.
	Synced(s *Scope, kind *Kind)
	// StartedLeading is called when this virtual kubelet begins to lead, after every object was enqueued.
	StartedLeading()
	// NamespacesChanged is called after a change in the set of offloaded namespaces.
	NamespacesChanged()
	// ObjectMatters reports whether a change to an object of this cluster, or of this node, must be reconciled.
	ObjectMatters(before, object *unstructured.Unstructured) bool
	// CopyMatters reports whether a change to a copy must be reconciled. Deletions are always reconciled.
	CopyMatters(before, copied *unstructured.Unstructured) bool
	// Derived returns the object that the provider's controllers have created from the copy of that name, if such
	// objects are watched.
	Derived(s *Scope, name string) *unstructured.Unstructured
	// Waiting returns the number of keys that the handler itself will enqueue later.
	Waiting() int
}

// Base is the Handler of kinds that have no Handler of their own.
type Base struct{ *Env }

// Reconcile implements Handler. It applies policy and chain to the object, and reflects its status back.
func (b Base) Reconcile(ctx context.Context, w *evaluation.Worker, s *Scope, key queue.Key) error {
	return b.r.reconcile(ctx, w, s, key)
}

// NotOffloaded implements Handler. It does nothing, because unoffloading cleans up the provider.
func (Base) NotOffloaded(context.Context, *evaluation.Worker, queue.Key) error { return nil }

// Decide implements Handler. It applies the policy of the kind.
func (b Base) Decide(_ *Scope, object *unstructured.Unstructured) (reflectionpolicy.Verdict, error) {
	kind := &b.r.kind
	if kind.Unless != nil && kind.Unless(object.GetName()) {
		return reflectionpolicy.DecideExplicit(raw.Annotations(object.Object))
	}
	return kind.Policy.Decide(raw.Annotations(object.Object))
}

// Context implements Handler. It adds no field.
func (Base) Context(*Scope, *unstructured.Unstructured) (string, map[string]any) { return "", nil }

// Extend implements Handler. It adds no watch.
func (Base) Extend(*Scope) {}

// Run implements Handler. It does nothing.
func (Base) Run(context.Context) {}

// Synced implements Handler. It does nothing.
func (Base) Synced(*Scope, *Kind) {}

// StartedLeading implements Handler. It does nothing.
func (Base) StartedLeading() {}

// NamespacesChanged implements Handler. It does nothing.
func (Base) NamespacesChanged() {}

// ObjectMatters implements Handler. It returns true, so that every change to an object is reconciled.
func (Base) ObjectMatters(_, _ *unstructured.Unstructured) bool { return true }

// CopyMatters implements Handler. It returns true, so that every change to a copy is reconciled.
func (Base) CopyMatters(_, _ *unstructured.Unstructured) bool { return true }

// Derived implements Handler. It returns nil, because no derived objects are watched.
func (Base) Derived(*Scope, string) *unstructured.Unstructured { return nil }

// Waiting implements Handler. It returns 0, because Base enqueues no keys itself.
func (Base) Waiting() int { return 0 }

// ChainInputs are the inputs of the chains of one object. A chain that does not run on the object has none.
type ChainInputs struct{ Outgoing, Incoming *mutation.Input }

// Inputs implements Handler. The outgoing chain runs on objects that the policy reflects, and the incoming chain on
// copies that have a status.
func (b Base) Inputs(s *Scope, local *unstructured.Unstructured) (in ChainInputs) {
	r, name := b.r, local.GetName()
	if r.copies.LocalName(r.copies.RemoteName(name)) != name || r.kind.Never != nil && r.kind.Never(local) {
		return in
	}
	if decided, err := r.handler.Decide(s, local); err != nil || !decided.Cross {
		return in
	}
	in.Outgoing = &mutation.Input{Object: local.Object, Context: s.outgoing(local)}
	if !r.kind.Status.Back || r.mute {
		return in
	}
	remote, going := s.PeekCopy(name)
	if remote == nil || going || copies.StandsForAnother(remote, local) || local.GetDeletionTimestamp() != nil {
		return in
	}
	in.Incoming = mutation.IncomingInput(s.Context(host.Incoming), local, remote)
	return in
}

var _ Handler = Base{}

// Peer returns the handler that implements T. Kinds do not know each other: a kind that needs another one declares an
// interface, and the package that lists the kinds asserts that a handler implements it. Peer returns false if the other
// kind is not reflected. It may be called only after New has created all handlers.
func Peer[T any](e *Env) (peer T, ok bool) {
	for _, r := range e.r.m.all() {
		if peer, ok = r.handler.(T); ok {
			return peer, true
		}
	}
	return peer, false
}
