// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/fieldmanager"
	"github.com/refract-project/refract/internal/printable"
)

// condition is the desired condition Ready of this virtual node's entry.
type condition struct {
	ready           bool
	reason, message string
}

// reported is the entry that this virtual node has written last. It is stored because the informer may not have
// received it yet.
type reported struct {
	uid     types.UID
	version string
	entry   pluginsv1alpha1.VirtualNodeReflection
}

// reportStatus writes the entry of this virtual node if it has changed.
func (f *Follower) reportStatus(ctx context.Context, object *unstructured.Unstructured, c condition) error {
	present := f.ownEntry(object)
	desired := f.desiredEntry(object, present, c)
	if present != nil && equalEntries(*present, desired) {
		return nil
	}
	f.log.Info("Condition of a ReflectedResource", "resource", object.GetName(), "ready", c.ready, "reason", c.reason, "message", c.message)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&desired)
	if err != nil {
		return err
	}
	status := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": pluginsv1alpha1.GroupVersion.String(), "kind": pluginsv1alpha1.ReflectedResourceKind,
		"metadata": map[string]any{"name": object.GetName(), "uid": string(object.GetUID())},
		"status":   map[string]any{"virtualNodes": []any{content}},
	}}
	ctx, cancel := f.local.withTimeout(ctx)
	defer cancel()
	stored, err := f.local.dynamic.Resource(pluginsv1alpha1.ReflectedResourceGVR).
		ApplyStatus(ctx, object.GetName(), status, metav1.ApplyOptions{FieldManager: fieldmanager.OfNode(f.options.NodeName), Force: true})
	// The object was deleted or replaced. This is not an error, because the watch will report it.
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reported[object.GetName()] = reported{object.GetUID(), stored.GetResourceVersion(), desired}
	return nil
}

// ownEntry returns the entry of this virtual node, which is at least as new as our last write. It returns nil if there
// is none.
func (f *Follower) ownEntry(object *unstructured.Unstructured) *pluginsv1alpha1.VirtualNodeReflection {
	f.mu.Lock()
	last, known := f.reported[object.GetName()]
	f.mu.Unlock()
	if known && last.uid == object.GetUID() {
		if order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), last.version); err == nil && order < 0 {
			return &last.entry
		}
	}
	var status pluginsv1alpha1.ReflectedResourceStatus
	fields, _ := object.Object["status"].(map[string]any)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &status); err != nil {
		return nil
	}
	i := slices.IndexFunc(status.VirtualNodes, func(e pluginsv1alpha1.VirtualNodeReflection) bool { return e.Name == f.options.NodeName })
	if i < 0 {
		return nil
	}
	return &status.VirtualNodes[i]
}

// desiredEntry returns the entry with the given condition. The transition time of the entry changes only if the status
// of Ready changes.
func (f *Follower) desiredEntry(object *unstructured.Unstructured, present *pluginsv1alpha1.VirtualNodeReflection, c condition) pluginsv1alpha1.VirtualNodeReflection {
	message := printable.Message(c.message)
	// Only this message may have several lines, because it contains the rules to add as YAML. They are generated in
	// this package and do not contain text from the other cluster.
	if c.reason == pluginsv1alpha1.MissingPermissionReason {
		message = printable.Shorten(printable.Text(c.message), printable.MaxMessage)
	}
	ready := metav1.Condition{
		Type: pluginsv1alpha1.ReadyCondition, Status: metav1.ConditionFalse, Reason: c.reason, Message: message,
		ObservedGeneration: object.GetGeneration(), LastTransitionTime: metav1.NewTime(f.options.Clock.Now()),
	}
	if c.ready {
		ready.Status = metav1.ConditionTrue
	}
	if present != nil {
		if before := meta.FindStatusCondition(present.Conditions, ready.Type); before != nil && before.Status == ready.Status {
			ready.LastTransitionTime = before.LastTransitionTime
		}
	}
	entry := pluginsv1alpha1.VirtualNodeReflection{Name: f.options.NodeName, ClusterID: f.options.RemoteClusterID, Conditions: []metav1.Condition{ready}}
	if f.options.VirtualNode != f.options.NodeName {
		entry.VirtualNode = f.options.VirtualNode
	}
	return entry
}

// equalEntries reports whether two entries are equal. Transition times are ignored, because they follow from the other
// fields.
func equalEntries(a, b pluginsv1alpha1.VirtualNodeReflection) bool {
	return a.Name == b.Name && a.VirtualNode == b.VirtualNode && a.ClusterID == b.ClusterID && slices.EqualFunc(a.Conditions, b.Conditions, func(x, y metav1.Condition) bool {
		return x.Type == y.Type && x.Status == y.Status && x.Reason == y.Reason && x.Message == y.Message && x.ObservedGeneration == y.ObservedGeneration
	})
}

// forgetStatus removes the record of the last write to a ReflectedResource that was deleted.
func (f *Follower) forgetStatus(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.reported, name)
}
