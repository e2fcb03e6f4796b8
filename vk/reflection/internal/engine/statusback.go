// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/jsonpatch"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// writeStatusBack writes the status of the copy to the object here.
func (r *reflector) writeStatusBack(ctx context.Context, w *Worker, s *Scope, local *unstructured.Unstructured) error {
	remote, going := s.Copy(local.GetName())
	if remote == nil || going || local.GetDeletionTimestamp() != nil || StandsForAnother(remote, local) {
		return nil
	}
	present, _ := local.Object["status"].(map[string]any)
	owner, by, err := r.ownerOf(ctx, local, present)
	switch {
	case err != nil || owner == foreign:
		return err
	case owner == overruled:
		return r.yield(ctx, w, local, by)
	}
	next, err := r.backStatus(ctx, w, s, local, remote)
	if err != nil || next == nil || owner == free && r.claimsNothing(next) {
		return err
	}
	next = r.generations(w, local, remote).Translate(next, present)
	merged := next
	if r.kind.Status.Fields != nil {
		merged = r.mergeStatus(present, next)
	}
	if raw.Equal(merged, present) {
		return r.remark(ctx, local, present)
	}
	if wait := r.paces.wait(raw.Key(local), r.m.options.Clock.Now()); wait > 0 {
		return &RetryAfter{wait}
	}
	return r.writeStatus(ctx, w, local, merged)
}

// backStatus runs the incoming chain on the copy. It returns nil if a plugin skips the copy or there is no status yet.
func (r *reflector) backStatus(ctx context.Context, w *Worker, s *Scope, local, remote *unstructured.Unstructured) (map[string]any, error) {
	if remote.Object["status"] == nil {
		return nil, nil
	}
	root := maps.Clone(s.Context(host.Incoming))
	root["local"] = local.Object
	outcome, err := r.mutate(ctx, w, host.Incoming, s.namespace.local, remote.Object, root)
	if err != nil {
		return nil, err
	}
	r.warnings(w, local, outcome)
	if outcome.Skipped {
		return nil, nil
	}
	status := w.Doc.Root().View().Field("status")
	if !status.Exists() {
		return map[string]any{}, nil
	}
	next, ok := status.Value().(map[string]any)
	if !ok {
		return nil, &OutputError{"the incoming chain returned a status that is not an object"}
	}
	if r.kind.Status.Shown != nil {
		next = r.kind.Status.Shown(newEnv(r), w, local, next)
	}
	return CutStatus(next), nil
}

func (r *reflector) statusSubresource() []string {
	if r.kind.Status.Subresource {
		return []string{"status"}
	}
	return nil
}

// mergeStatus replaces the reflected fields and keeps the others.
func (r *reflector) mergeStatus(present, next map[string]any) map[string]any {
	merged := maps.Clone(present)
	if merged == nil {
		merged = map[string]any{}
	}
	for _, field := range r.kind.Status.Fields {
		if value, ok := next[field]; ok {
			merged[field] = value
		} else {
			delete(merged, field)
		}
	}
	return merged
}

// writeStatus writes the status and its owner. The API server ignores annotations in a status update of a custom
// resource, so their owner is written first.
func (r *reflector) writeStatus(ctx context.Context, w *Worker, local *unstructured.Unstructured, status map[string]any) error {
	mark := AddEntries(nil, "/metadata/annotations", raw.Annotations(local.Object), r.marked(status))
	if r.kind.Status.Subresource && r.kind.Status.Fields == nil && len(mark) > 0 {
		var err error
		if local, err = r.patchLocal(ctx, local, append(mark, unchanged(local)...)); err != nil || local == nil {
			return err
		}
		mark = nil
	}
	return r.putStatus(ctx, w, local, status, mark)
}

// marked returns the annotations of a status that is shown.
func (r *reflector) marked(status map[string]any) map[string]string {
	marks := map[string]string{StatusFromAnnotation: r.m.options.RemoteClusterID}
	if r.kind.Status.Fields != nil {
		marks[StatusHashAnnotation] = r.hashShown(status)
	}
	return marks
}

// putStatus writes the status together with further changes, and remembers how the API server stored it.
func (r *reflector) putStatus(ctx context.Context, w *Worker, local *unstructured.Unstructured, status map[string]any, with jsonpatch.Patch) error {
	key := raw.Key(local)
	// The stored form of a status depends on the rest of the object: a Service that is not a load balancer keeps no
	// address.
	asked := document.Hash(status)
	known := asked ^ intentHash(local)
	if r.statuses.accepted(key, known, document.Hash(local.Object["status"]), r.m.options.Clock.Now()) {
		return nil
	}
	if err := CheckStatusSize(status); err != nil {
		return err
	}
	if err := r.mayShow(ctx, local, status, known); err != nil {
		return err
	}
	with = append(with, unchanged(local)...)
	with.Add("/status", status)
	stored, err := r.patchLocal(ctx, local, with, r.statusSubresource()...)
	if err != nil || stored == nil {
		return err
	}
	w.Wrote(Back)
	r.shown.RecordWrite(key, known, known)
	if got := document.Hash(stored.Object["status"]); got != asked {
		r.statuses.accept(key, known, got)
	}
	if _, marked := raw.Annotations(stored.Object)[StatusHashAnnotation]; !marked {
		return nil
	}
	made, _ := stored.Object["status"].(map[string]any)
	return r.remark(ctx, stored, made) // the API server may have stored another form, which was shown
}

// retractStatus removes the status that came from a copy that is being removed. The previous value of a whole status is
// not known, so such a status stays, and only the ownership is given up.
func (r *reflector) retractStatus(ctx context.Context, w *Worker, local *unstructured.Unstructured) error {
	if from, _ := raw.Annotations(local.Object)[StatusFromAnnotation].(string); from != r.m.options.RemoteClusterID {
		return nil
	}
	patch := unchanged(local)
	patch.Remove("/metadata/annotations" + jsonpatch.Pointer(StatusFromAnnotation))
	if _, has := raw.Annotations(local.Object)[StatusHashAnnotation]; has {
		patch.Remove("/metadata/annotations" + jsonpatch.Pointer(StatusHashAnnotation))
	}
	present, _ := local.Object["status"].(map[string]any)
	var subresources []string
	if r.kind.Status.Subresource && r.kind.Status.Fields != nil {
		subresources = r.statusSubresource()
		owner, _, err := r.ownerOf(ctx, local, present)
		if err != nil {
			return err
		}
		if owner == owned {
			patch.Add("/status", r.mergeStatus(present, nil))
		}
	}
	if _, err := r.patchLocal(ctx, local, patch, subresources...); err != nil {
		return err
	}
	w.Wrote(Back)
	return nil
}
