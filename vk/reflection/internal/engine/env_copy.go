// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// CopyWriter makes copies what they should be. Safe for concurrent use.
type CopyWriter struct{ r *reflector }

// Ownership returns the labels by which copies are known.
func (e CopyWriter) Ownership() map[string]string { return e.r.m.options.ownership(e.r.kind) }

// Managed reports whether an object bears the labels of what this virtual kubelet made.
func (e CopyWriter) Managed(object *unstructured.Unstructured) bool { return e.r.managed(object) }

// RemoteName is the name of the copy of an object.
func (e CopyWriter) RemoteName(local string) string { return e.r.remoteName(local) }

// Desired reads what the copy of an object should be from the worker's document. A plugin's result that cannot be an object
// is an *OutputError.
func (e CopyWriter) Desired(w *Worker, s *Scope, local *unstructured.Unstructured) (*Desired, error) {
	return e.r.desired(w, s, local)
}

// Converge makes the copy what the worker's document says.
func (e CopyWriter) Converge(ctx context.Context, w *Worker, s *Scope, local, remote *unstructured.Unstructured) error {
	return e.r.converge(ctx, w, s, local, remote)
}

// Write makes the copy what is desired; remote is the present one, or nil.
func (e CopyWriter) Write(ctx context.Context, w *Worker, x *Desired, remote *unstructured.Unstructured) error {
	return e.r.write(ctx, w, x, remote)
}

// Create makes the copy where none of ours is known. What is there already under that name is never overwritten.
func (e CopyWriter) Create(ctx context.Context, w *Worker, x *Desired) error {
	return e.r.create(ctx, w, x)
}

// Update sends object, unless the API server has shown that it changes nothing, or somebody else keeps reverting it.
func (e CopyWriter) Update(ctx context.Context, w *Worker, x *Desired, remote, object *unstructured.Unstructured) error {
	return e.r.update(ctx, w, x, remote, object)
}

// Remove deletes our copy, and only the very one that is known; nil is none.
func (e CopyWriter) Remove(ctx context.Context, w *Worker, s *Scope, remote *unstructured.Unstructured) error {
	return e.r.remove(ctx, w, s, remote)
}

// MustBeFree asks the provider itself whether the name of a copy is free: a foreign object is a *ForeignError, and one of ours
// that the watch has not shown is enqueued again.
func (e CopyWriter) MustBeFree(ctx context.Context, s *Scope, key Key) error {
	return e.r.mustBeFree(ctx, s, key)
}

// WholeCopy returns a copy with all of its content, read from the provider when that is not kept; see Cache.Copies. When it is not the
// same any more, the error has the object enqueued again.
func (e CopyWriter) WholeCopy(ctx context.Context, s *Scope, copied *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return e.r.wholeCopy(ctx, s, copied)
}
