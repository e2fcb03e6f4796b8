// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// CopyWriter writes copies to the provider. Safe for concurrent use.
type CopyWriter struct{ r *reflector }

// Ownership returns the labels that identify copies.
func (e CopyWriter) Ownership() map[string]string { return e.r.m.options.ownership(e.r.kind) }

// Managed reports whether an object bears the labels of objects that this virtual kubelet created.
func (e CopyWriter) Managed(object *unstructured.Unstructured) bool { return e.r.managed(object) }

// RemoteName returns the name of the copy of an object.
func (e CopyWriter) RemoteName(local string) string { return e.r.remoteName(local) }

// Desired reads the desired copy of an object from the worker's document. It returns an *OutputError if the result of a
// plugin is not a valid object.
func (e CopyWriter) Desired(w *Worker, s *Scope, local *unstructured.Unstructured) (*Desired, error) {
	return e.r.desired(w, s, local)
}

// Converge makes the copy equal to the worker's document.
func (e CopyWriter) Converge(ctx context.Context, w *Worker, s *Scope, local, remote *unstructured.Unstructured) error {
	return e.r.converge(ctx, w, s, local, remote)
}

// Write makes the copy equal to the desired state. remote is the present copy, or nil.
func (e CopyWriter) Write(ctx context.Context, w *Worker, x *Desired, remote *unstructured.Unstructured) error {
	return e.r.write(ctx, w, x, remote)
}

// Create creates the copy when no copy of ours is known. An existing object of the same name is never overwritten.
func (e CopyWriter) Create(ctx context.Context, w *Worker, x *Desired) error {
	return e.r.create(ctx, w, x)
}

// Update sends object, unless the API server has shown that the update changes nothing, or another client keeps
// reverting it.
func (e CopyWriter) Update(ctx context.Context, w *Worker, x *Desired, remote, object *unstructured.Unstructured) error {
	return e.r.update(ctx, w, x, remote, object)
}

// Remove deletes our copy, with its uid as a precondition. It does nothing if remote is nil.
func (e CopyWriter) Remove(ctx context.Context, w *Worker, s *Scope, remote *unstructured.Unstructured) error {
	return e.r.remove(ctx, w, s, remote)
}

// MustBeFree checks with the provider's API server whether the name of a copy is free. A foreign object is a
// *ForeignError. A copy of ours that the watch has not shown is enqueued again.
func (e CopyWriter) MustBeFree(ctx context.Context, s *Scope, key Key) error {
	return e.r.mustBeFree(ctx, s, key)
}

// WholeCopy returns a copy with all of its content, read from the provider if the cache does not have it; see
// Cache.Copies. If the read copy differs from the cached one, the error has the object enqueued again.
func (e CopyWriter) WholeCopy(ctx context.Context, s *Scope, copied *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return e.r.wholeCopy(ctx, s, copied)
}
