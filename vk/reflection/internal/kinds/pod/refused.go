// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/podend"
	"github.com/refract-project/refract/vk/namespaces"
	"github.com/refract-project/refract/vk/pods"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
)

// notOffloadedHint is the remedy for the user of a pod in a namespace that is not offloaded.
const notOffloadedHint = "its namespace is not offloaded to that cluster. To keep the pods of a DaemonSet off virtual nodes, exclude nodes with the label " +
	wire.TypeLabel + "=" + wire.VirtualNodeType + " in its node affinity"

// unknownHint is the explanation for a pod whose namespace may still be offloaded.
const unknownHint = "the remote namespace has not been created yet; see the status of the NamespaceOffloading in that namespace"

// NotOffloaded implements engine.Handler. It handles a pod on this node whose namespace is not offloaded. (Liqo: the
// fallback of pod reflection.)
//
// While this is not certain (the map has not been read, is gone, or announces the remote namespace), a pod that has
// begun is left alone. Only a pod that has never run is set to waiting, or released when it is being deleted.
func (h *Handler) NotOffloaded(ctx context.Context, w *engine.Worker, key engine.Key) error {
	local := h.ObjectOfNode(key)
	if local == nil {
		h.states.Delete(key)
		h.admitted.leave(key)
		h.Forget(key)
		return nil
	}
	state, known := h.NamespaceState(key.Namespace)
	if !known || state == namespaces.Mapped {
		return nil // the pod is enqueued again when the namespace is ready
	}
	status, _ := local.Object["status"].(map[string]any)
	certain := state == namespaces.NotOffloaded
	switch {
	case local.GetDeletionTimestamp() != nil:
		if certain || pods.Untouched(status) {
			return h.deleteLocalPod(ctx, w, local)
		}
		return nil
	case certain && !pods.Untouched(status) && !podend.Finished(pods.Phase(status)):
		if named, err := h.MapNames(ctx, key.Namespace); named || err != nil {
			return err // the pod is enqueued again when the cache has the namespace, too
		}
		return h.refusePod(ctx, w, local, notOffloadedHint)
	case certain:
		return h.refusePod(ctx, w, local, notOffloadedHint)
	case pods.Untouched(status):
		return h.refusePod(ctx, w, local, unknownHint)
	default:
		return nil
	}
}

// skipPod does not offload a pod because a plugin skips it. A pod that is not shown as running may still run on the
// provider.
func (h *Handler) skipPod(ctx context.Context, w *engine.Worker, v *podView, why string) error {
	if pods.Untouched(v.status) {
		if err := h.Remove(ctx, w, v.scope, v.shadow); err != nil {
			return err
		}
	}
	return h.refusePod(ctx, w, v.local, why)
}

// refusePod shows that a pod is not offloaded: a pod that has not begun waits, and a pod that has begun fails. Its
// ShadowPod, if any, is deleted after the status was written.
func (h *Handler) refusePod(ctx context.Context, w *engine.Worker, local *unstructured.Unstructured, why string) error {
	status, _ := local.Object["status"].(map[string]any)
	phase, reason := corev1.PodFailed, wire.OffloadingAbortedReason
	if pods.Untouched(status) {
		phase, reason = corev1.PodPending, wire.OffloadingBackOffReason
	}
	if podend.Finished(pods.Phase(status)) || pods.Phase(status) == phase && pods.Reason(status) == reason {
		return nil
	}
	h.Warn(local, wire.ReflectionDisabledReason, fmt.Sprintf("not offloaded to cluster %s: %s", h.Options().RemoteClusterID, why))
	return h.PatchStatus(ctx, w, local, pods.Reject(status, phase, reason, "", h.Clock().Now()), Marks{})
}
