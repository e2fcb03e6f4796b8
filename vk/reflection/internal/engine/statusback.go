// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"maps"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/jsonpatch"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// StatusFromAnnotation, on objects of this cluster whose status comes from a provider, is its cluster id. An object has
// one status and may have copies on several providers, and a controller of its own here: the first to write it owns
// it until it takes it back or its cluster is no longer known here.
//
// The id of this cluster itself says that a controller here owns the status for good: it wrote after the provider, see yield.
const StatusFromAnnotation = wire.StatusFromAnnotation

// StatusHashAnnotation, beside StatusFromAnnotation, is a hash of what was shown: whatever else the status says was written by
// a controller of this cluster.
const StatusHashAnnotation = wire.StatusHashAnnotation

// StatusOverruledReason is the reason of the Event that a provider's status is not shown any more.
const StatusOverruledReason = "StatusOverruled"

// writeStatusBack writes the status of the copy to the object here.
func (r *reflector) writeStatusBack(ctx context.Context, w *Worker, s *Scope, local *unstructured.Unstructured) error {
	remote, going := s.Copy(local.GetName())
	if remote == nil || going || local.GetDeletionTimestamp() != nil {
		return nil
	}
	present, _ := local.Object["status"].(map[string]any)
	if r.overruled(local, present) {
		return r.yield(ctx, w, local)
	}
	if !r.ownsStatus(local, present) {
		return nil
	}
	next, err := r.backStatus(ctx, w, s, local, remote)
	if err != nil || next == nil {
		return err
	}
	next = r.generations(w, local, remote).Translate(next, present)
	merged := next
	if r.kind.Status.Fields != nil {
		merged = r.mergeStatus(present, next)
	}
	if raw.Equal(merged, present) {
		return nil
	}
	if wait := r.paces.wait(raw.Key(local), r.m.options.Clock.Now()); wait > 0 {
		return &RetryAfter{wait}
	}
	return r.writeStatus(ctx, w, local, merged)
}

// backStatus runs the incoming chain on the copy; nil when a plugin skips it or there is nothing yet.
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

// overruled reports whether a controller of this cluster has written the status after us.
func (r *reflector) overruled(local *unstructured.Unstructured, present map[string]any) bool {
	annotations := raw.Annotations(local.Object)
	said, _ := annotations[StatusHashAnnotation].(string)
	return annotations[StatusFromAnnotation] == r.m.options.RemoteClusterID && said != "" && said != r.hashShown(present)
}

// hashShown is the hash of the fields that come back.
func (r *reflector) hashShown(status map[string]any) string {
	fields := map[string]any{}
	for _, field := range r.kind.Status.Fields {
		if !raw.IsEmpty(status[field]) {
			fields[field] = status[field]
		}
	}
	return strconv.FormatUint(document.Hash(fields), 16)
}

// yield leaves the status to a controller of this cluster that writes it, too. Both would overwrite each other forever; only
// the user knows which of the two is right, and the Event lists the options.
func (r *reflector) yield(ctx context.Context, w *Worker, local *unstructured.Unstructured) error {
	patch := unchanged(local)
	patch.Remove("/metadata/annotations" + jsonpatch.Pointer(StatusHashAnnotation))
	patch = AddEntries(patch, "/metadata/annotations", raw.Annotations(local.Object), map[string]string{StatusFromAnnotation: r.m.options.LocalClusterID})
	stored, err := r.patchLocal(ctx, local, patch, r.statusSubresource()...)
	if err != nil || stored == nil {
		return err
	}
	w.Result, w.Warned = "written", true
	r.m.events.Warn(r.kind.Name, local, StatusOverruledReason, fmt.Sprintf(
		"a controller of this cluster updated the status; the status from cluster %s is no longer shown. To show it again, use a class that no controller of this cluster serves and remove the annotation %s",
		r.m.options.RemoteClusterID, StatusFromAnnotation))
	return nil
}

func (r *reflector) statusSubresource() []string {
	if r.kind.Status.Subresource {
		return []string{"status"}
	}
	return nil
}

// ownsStatus reports whether the status is ours to write.
func (r *reflector) ownsStatus(local *unstructured.Unstructured, present map[string]any) bool {
	from, _ := raw.Annotations(local.Object)[StatusFromAnnotation].(string)
	switch {
	case from == r.m.options.RemoteClusterID:
		return true
	case from == r.m.options.LocalClusterID:
		return false
	case from != "":
		return !r.m.knowsCluster(from)
	case r.kind.Status.Fields == nil:
		return true // a user has enabled it, and knows whether a controller of this cluster owns the status
	}
	for _, field := range r.kind.Status.Fields {
		if !raw.IsEmpty(present[field]) {
			return false
		}
	}
	return true
}

// knowsCluster reports whether this cluster has a virtual node for it.
func (m *Manager) knowsCluster(id string) bool {
	for _, cluster := range m.settings.Load().virtualNodes {
		if cluster == id {
			return true
		}
	}
	return false
}

// mergeStatus replaces the fields that come back and keeps the others.
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

// writeStatus writes the status and its owner. Custom resources keep no annotation that comes with a status, so their owner
// is written first.
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

// marked are the annotations of a status that is shown.
func (r *reflector) marked(status map[string]any) map[string]string {
	marks := map[string]string{StatusFromAnnotation: r.m.options.RemoteClusterID}
	if r.kind.Status.Fields != nil {
		marks[StatusHashAnnotation] = r.hashShown(status)
	}
	return marks
}

// putStatus writes the status together with something else, and remembers what the API server made of it.
func (r *reflector) putStatus(ctx context.Context, w *Worker, local *unstructured.Unstructured, status map[string]any, with jsonpatch.Patch) error {
	key := raw.Key(local)
	asked := document.Hash(status)
	if r.statuses.Accepted(key, asked, document.Hash(local.Object["status"])) {
		return nil
	}
	if err := CheckStatusSize(status); err != nil {
		return err
	}
	with = append(with, unchanged(local)...)
	with.Add("/status", status)
	stored, err := r.patchLocal(ctx, local, with, r.statusSubresource()...)
	if err != nil || stored == nil {
		return err
	}
	w.Wrote(Back)
	if got := document.Hash(stored.Object["status"]); got != asked {
		r.statuses.Accept(key, asked, got)
	}
	if made, _ := stored.Object["status"].(map[string]any); r.overruled(stored, made) {
		// The API server made something else of it: that is what was shown.
		right := AddEntries(unchanged(stored), "/metadata/annotations", raw.Annotations(stored.Object), r.marked(made))
		_, err = r.patchLocal(ctx, stored, right, r.statusSubresource()...)
	}
	return err
}

// retractStatus takes back what came from a copy that goes. What a whole status was before nobody knows, so that stays, and
// only the ownership is given up.
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
		if !r.overruled(local, present) {
			patch.Add("/status", r.mergeStatus(present, nil))
		}
	}
	if _, err := r.patchLocal(ctx, local, patch, subresources...); err != nil {
		return err
	}
	w.Wrote(Back)
	return nil
}
