// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/refract-project/refract/internal/jsonpatch"
)

// ObjectWriter writes to objects of this cluster. Safe for concurrent use.
type ObjectWriter struct{ r *reflector }

// PutStatus writes the status of an object of this cluster.
func (e ObjectWriter) PutStatus(ctx context.Context, w *Worker, local *unstructured.Unstructured, status map[string]any) error {
	return e.r.putStatus(ctx, w, local, status, nil)
}

// PatchLocal patches an object of this cluster if its uid is unchanged. It returns nil and no error if the object is
// gone.
func (e ObjectWriter) PatchLocal(ctx context.Context, local *unstructured.Unstructured, patch jsonpatch.Patch, subresources ...string) (*unstructured.Unstructured, error) {
	return e.r.patchLocal(ctx, local, patch, subresources...)
}

// Patch sends a patch for an object of this cluster. kind is for messages. A failed test in the patch is a conflict.
func (e ObjectWriter) Patch(ctx context.Context, resource schema.GroupVersionResource, kind string, key Key, patch jsonpatch.Patch) (*unstructured.Unstructured, error) {
	return e.r.m.patch(ctx, resource, kind, key, patch)
}

// Pace returns how long to wait until the status of an object may be written again.
func (e ObjectWriter) Pace(key Key) time.Duration {
	return e.r.paces.wait(key, e.r.m.options.Clock.Now())
}

// Accepted reports whether the API server stored status before when asked was written; see Accept.
func (e ObjectWriter) Accepted(key Key, asked, status uint64) bool {
	return e.r.statuses.accepted(key, asked, status, e.r.m.options.Clock.Now())
}

// Accept remembers which status the API server stored when asked was written.
func (e ObjectWriter) Accept(key Key, asked, status uint64) { e.r.statuses.accept(key, asked, status) }

// Forget drops the remembered state of a deleted object.
func (e ObjectWriter) Forget(key Key) { e.r.forget(key) }
