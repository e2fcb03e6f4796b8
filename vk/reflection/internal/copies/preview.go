// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// Hash returns a hash of the desired state.
func (x *Desired) Hash(w *evaluation.Worker) uint64 { return x.hash(w) }

// Content returns the fields of the mutated object that are reflected. Their paths are the paths in the local object,
// not in the copy.
func (x *Desired) Content(w *evaluation.Worker) map[string]any {
	spec := &x.c.spec
	payload := x.payload(w)
	if spec.Payload != "" {
		payload = map[string]any{spec.Payload: payload}
	}
	payload["metadata"] = map[string]any{
		"labels":      content.Merge(x.labels, nil, spec.DropLabels),
		"annotations": content.Merge(x.annotations, nil, spec.DropAnnotations),
	}
	return payload
}

// ChangeableContent returns the part of a result of Content that can be changed in an existing copy.
func (c *Writer) ChangeableContent(of map[string]any) map[string]any {
	payload := c.spec.Payload
	if c.spec.Changeable == nil || of[payload] == nil {
		return of
	}
	return map[string]any{"metadata": of["metadata"], payload: c.spec.Changeable(raw.Map(of[payload]))}
}
