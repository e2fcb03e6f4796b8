// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/namespaces"
	"github.com/refract-project/refract/vk/pods"
)

// notOffloadedHint tells the user of a pod that should not be here what to do.
const notOffloadedHint = "its namespace is not extended to this cluster; to keep the pods of a DaemonSet off virtual nodes, exclude nodes with the label " +
	wire.TypeLabel + "=" + wire.VirtualNodeType + " in its node affinity"

// unknownHint is for a pod whose namespace may yet be extended.
const unknownHint = "its namespace has no remote namespace on this cluster yet; see the status of the NamespaceOffloading in that namespace"

// podNotOffloaded deals with a pod on this node whose namespace is not extended. (Liqo: the fallback of pod reflection.)
//
// While that is not certain (the map has not been read, is gone, or says that the remote namespace is on its way) a pod that has
// begun is left alone: only what has never run is told to wait, or let go when it is being deleted.
func (r *reflector) podNotOffloaded(ctx context.Context, w *worker, key Key, local *unstructured.Unstructured) error {
	if local == nil {
		return nil
	}
	state := r.m.mapper.State(key.Namespace)
	if !r.m.mapper.Synced() || state == namespaces.Mapped {
		return nil // looked at again when the namespace is ready
	}
	status, _ := local.Object["status"].(map[string]any)
	certain := state == namespaces.NotOffloaded
	switch {
	case local.GetDeletionTimestamp() != nil:
		if certain || pods.Untouched(status) {
			return r.deleteLocalPod(ctx, w, local)
		}
		return nil
	case certain:
		return r.refusePod(ctx, w, local, notOffloadedHint)
	case pods.Untouched(status):
		return r.refusePod(ctx, w, local, unknownHint)
	default:
		return nil
	}
}

// skipPod keeps a pod at home because a plugin says so. One that is not shown to run may yet do so on the provider.
func (r *reflector) skipPod(ctx context.Context, w *worker, v *podView, why string) error {
	if pods.Untouched(v.status) {
		if err := r.remove(ctx, w, v.extension, v.copies, v.shadow); err != nil {
			return err
		}
	}
	return r.refusePod(ctx, w, v.local, why)
}

// refusePod shows that a pod is not offloaded: one that has not begun waits, one that has is over. Its ShadowPod, if
// any, is deleted once the pod says so.
func (r *reflector) refusePod(ctx context.Context, w *worker, local *unstructured.Unstructured, why string) error {
	status, _ := local.Object["status"].(map[string]any)
	phase, reason := corev1.PodFailed, wire.OffloadingAbortedReason
	if pods.Untouched(status) {
		phase, reason = corev1.PodPending, wire.OffloadingBackOffReason
	}
	if pods.Finished(pods.Phase(status)) || pods.Phase(status) == phase && pods.Reason(status) == reason {
		return nil
	}
	r.m.events.Warn(PodKind, local, wire.ReflectionDisabledReason, fmt.Sprintf("not offloaded to cluster %s: %s", r.m.options.RemoteClusterID, why))
	return r.patchStatus(ctx, w, local, pods.Reject(status, phase, reason, "", r.m.options.Clock.Now()), marks{})
}
