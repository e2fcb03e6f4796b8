// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/jsonpatch"
	"github.com/refract-project/refract/vk/reflection/internal/clients"
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
	"github.com/refract-project/refract/vk/reflection/internal/readonly"
)

// ShowStatus writes the status of a copy to the local object, unless another cluster or a controller of this cluster
// owns the status. It calls next only if it may write the status. next returns the new status, or nil if the copy has
// no status.
func (o *Writer) ShowStatus(ctx context.Context, w *evaluation.Worker, local, remote *unstructured.Unstructured, next func() (map[string]any, error)) error {
	present, _ := local.Object["status"].(map[string]any)
	owner, by, err := o.ownerOf(ctx, local, present)
	switch {
	case err != nil || owner == foreign:
		return err
	case owner == overruled:
		return o.yield(ctx, w, local, by)
	}
	status, err := next()
	if err != nil || status == nil || owner == free && o.claimsNothing(status) {
		return err
	}
	status = o.generations(w, local, remote).Translate(status, present)
	if o.spec.Fields != nil {
		status = o.mergeStatus(present, status)
	}
	if raw.Equal(status, present) {
		return o.remark(ctx, local, present)
	}
	if wait := o.Delays.Pace(raw.Key(local), o.clock.Now()); wait > 0 {
		return &failure.RetryAfter{After: wait}
	}
	return o.writeStatus(ctx, w, local, status)
}

func (o *Writer) statusSubresource() []string {
	if o.spec.Subresource {
		return []string{"status"}
	}
	return nil
}

// mergeStatus returns the present status with the reflected fields of next.
func (o *Writer) mergeStatus(present, next map[string]any) map[string]any {
	merged := maps.Clone(present)
	if merged == nil {
		merged = map[string]any{}
	}
	for _, field := range o.spec.Fields {
		if value, ok := next[field]; ok {
			merged[field] = value
		} else {
			delete(merged, field)
		}
	}
	return merged
}

// writeStatus writes the status, and the annotations that name its owner. For a custom resource, the annotations are
// written first, because the API server ignores them in a status write.
func (o *Writer) writeStatus(ctx context.Context, w *evaluation.Worker, local *unstructured.Unstructured, status map[string]any) error {
	mark := clients.AddEntries(nil, "/metadata/annotations", raw.Annotations(local.Object), o.marked(status))
	if o.spec.Subresource && o.spec.Fields == nil && len(mark) > 0 {
		var err error
		if local, err = o.PatchLocal(ctx, local, append(mark, clients.Unchanged(local)...)); err != nil || local == nil {
			return err
		}
		mark = nil
	}
	return o.PutStatus(ctx, w, local, status, mark)
}

// marked returns the annotations of a status that this virtual kubelet writes.
func (o *Writer) marked(status map[string]any) map[string]string {
	marks := map[string]string{StatusFromAnnotation: o.remoteClusterID}
	if o.spec.Fields != nil {
		marks[StatusHashAnnotation] = o.hashShown(status)
	}
	return marks
}

// PutStatus writes the status in one patch, together with the changes in with. It remembers in which form the API
// server has stored the status.
func (o *Writer) PutStatus(ctx context.Context, w *evaluation.Worker, local *unstructured.Unstructured, status map[string]any, with jsonpatch.Patch) error {
	key := raw.Key(local)
	// The hash also covers other fields of the object, because the stored form of a status depends on them. For
	// example, a Service that is not a load balancer has no address in its status.
	asked := document.Hash(status)
	known := asked ^ content.IntentHash(local)
	if o.accepted.Accepted(key, known, document.Hash(local.Object["status"]), o.clock.Now()) {
		return nil
	}
	if err := content.CheckStatusSize(status); err != nil {
		return err
	}
	if err := readonly.Refuse(ctx, "patch the status of", o.sourceKind, key.Namespace, key.Name); err != nil {
		return err
	}
	if err := o.mayShow(ctx, local, status, known); err != nil {
		return err
	}
	with = append(with, clients.Unchanged(local)...)
	with.Add("/status", status)
	stored, err := o.PatchLocal(ctx, local, with, o.statusSubresource()...)
	if err != nil || stored == nil {
		return err
	}
	w.Wrote(evaluation.Back)
	o.shown.RecordWrite(key, known, known)
	if got := document.Hash(stored.Object["status"]); got != asked {
		o.accepted.Accept(key, known, got)
	}
	if _, marked := raw.Annotations(stored.Object)[StatusHashAnnotation]; !marked {
		return nil
	}
	made, _ := stored.Object["status"].(map[string]any)
	// The annotations may be wrong, because the API server may have stored the status in a different form.
	return o.remark(ctx, stored, made)
}

// RetractStatus removes the reflected fields of the status from a local object when its copy is being deleted. If the
// status is reflected as a whole, its previous content is unknown, so the status is kept, and only the annotations that
// name the owner are removed.
func (o *Writer) RetractStatus(ctx context.Context, w *evaluation.Worker, local *unstructured.Unstructured) error {
	if from, _ := raw.Annotations(local.Object)[StatusFromAnnotation].(string); from != o.remoteClusterID {
		return nil
	}
	patch := clients.Unchanged(local)
	patch.Remove("/metadata/annotations" + jsonpatch.Pointer(StatusFromAnnotation))
	if _, has := raw.Annotations(local.Object)[StatusHashAnnotation]; has {
		patch.Remove("/metadata/annotations" + jsonpatch.Pointer(StatusHashAnnotation))
	}
	present, _ := local.Object["status"].(map[string]any)
	var subresources []string
	if o.spec.Subresource && o.spec.Fields != nil {
		subresources = o.statusSubresource()
		owner, _, err := o.ownerOf(ctx, local, present)
		if err != nil {
			return err
		}
		if owner == owned {
			patch.Add("/status", o.mergeStatus(present, nil))
		}
	}
	if _, err := o.PatchLocal(ctx, local, patch, subresources...); err != nil {
		return err
	}
	w.Wrote(evaluation.Back)
	return nil
}

// generations returns the generations of an object and of its copy after the copy was compared or written. For kinds
// without a status subresource, Object is 0: every status write would increase the generation of the object, and
// therefore require another write.
func (o *Writer) generations(w *evaluation.Worker, local, remote *unstructured.Unstructured) (g content.Generations) {
	if o.spec.Subresource {
		g.Object = local.GetGeneration()
	}
	if remote.GetGeneration() == w.Matched {
		g.Copy = w.Matched
	}
	return g
}
