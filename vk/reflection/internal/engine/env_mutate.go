// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/host"
)

// Mutator runs the plugin chains of the kind. Safe for concurrent use.
type Mutator struct{ r *reflector }

// Mutate runs the chain of the hook on an object. The result is in the worker's document.
func (e Mutator) Mutate(ctx context.Context, w *Worker, hook host.Hook, namespace string, object, root map[string]any) (*host.Outcome, error) {
	return e.r.mutate(ctx, w, hook, namespace, object, root)
}

// IncomingStatus runs the incoming chain on the copy. It returns nil if a plugin skips the copy or there is no status
// yet.
func (e Mutator) IncomingStatus(ctx context.Context, w *Worker, s *Scope, local, remote *unstructured.Unstructured) (map[string]any, error) {
	return e.r.backStatus(ctx, w, s, local, remote)
}

// Warnings reports the warnings of plugins in Events about an object of this cluster.
func (e Mutator) Warnings(w *Worker, object *unstructured.Unstructured, outcome *host.Outcome) {
	e.r.warnings(w, object, outcome)
}

// CheckAnnotations warns about annotations that have no effect because their names are misspelt.
func (e Mutator) CheckAnnotations(w *Worker, object *unstructured.Unstructured) {
	e.r.misspelt(w, object)
}
