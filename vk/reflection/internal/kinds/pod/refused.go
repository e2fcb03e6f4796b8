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
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/pods"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
)

// notOffloadedHint is the remedy for the user of a pod in a namespace that is not offloaded.
const notOffloadedHint = "its namespace is not offloaded to that cluster. To keep the pods of a DaemonSet off virtual nodes, exclude nodes with the label " +
	wire.TypeLabel + "=" + wire.VirtualNodeType + " in its node affinity"

// unknownHint is the explanation for a pod whose namespace may still be offloaded.
const unknownHint = "the remote namespace has not been created yet; see the status of the NamespaceOffloading in that namespace"

// NotOffloaded implements engine.Handler. It handles a pod on this node whose namespace is not offloaded. This
// corresponds to the fallback in Liqo's pod reflection.
//
// While it is not certain that the namespace is not offloaded (the map has not been read, was deleted, or announces
// the remote namespace), a pod that has started is not changed. Only a pod that has never run is set to waiting, or
// released if it is being deleted.
func (h *Handler) NotOffloaded(ctx context.Context, w *evaluation.Worker, key queue.Key) error {
	local := h.ObjectOfNode(key)
	if local == nil {
		h.states.Delete(key)
		h.admitted.leave(key)
		h.Forget(key)
		return nil
	}
	state, known := h.NamespaceState(key.Namespace)
	if !known || state == namespaces.Mapped {
		// Nothing is done now. The pod is enqueued again as soon as the namespace is ready.
		return nil
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
			// Nothing is done now. The pod is enqueued again as soon as the cache has the namespace, too.
			return err
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

// skipPod handles a pod that a plugin skips, so that it is not offloaded. Even a pod that is not shown as running may
// still run on the provider, so its ShadowPod is deleted. If the deletion fails, goesOn is true: the status of the
// ShadowPod should be shown.
func (h *Handler) skipPod(ctx context.Context, w *evaluation.Worker, v *podView, why string) (goesOn bool, err error) {
	if pods.Untouched(v.status) {
		if err := h.Copies.Remove(ctx, w, v.scope.Namespace, v.shadow); err != nil {
			return true, err
		}
	}
	return false, h.refusePod(ctx, w, v.local, why)
}

// refusePod shows that a pod is not offloaded: a pod that has not begun waits, and a pod that has begun fails. Its
// ShadowPod, if any, is deleted after the status was written.
func (h *Handler) refusePod(ctx context.Context, w *evaluation.Worker, local *unstructured.Unstructured, why string) error {
	status, _ := local.Object["status"].(map[string]any)
	phase, reason := corev1.PodFailed, wire.OffloadingAbortedReason
	if pods.Untouched(status) {
		phase, reason = corev1.PodPending, wire.OffloadingBackOffReason
	}
	return h.rejectPod(ctx, w, local, phase, reason, why)
}

// rejectPod sets the phase and the reason of a pod that is not offloaded, unless it has them or has finished.
func (h *Handler) rejectPod(ctx context.Context, w *evaluation.Worker, local *unstructured.Unstructured, phase corev1.PodPhase, reason, why string) error {
	status, _ := local.Object["status"].(map[string]any)
	if podend.Finished(pods.Phase(status)) || pods.Phase(status) == phase && pods.Reason(status) == reason {
		return nil
	}
	h.Events.Warn(local, wire.ReflectionDisabledReason, fmt.Sprintf("not offloaded to cluster %s: %s", h.Options().RemoteClusterID, why))
	return h.PatchStatus(ctx, w, local, pods.Reject(status, phase, reason, "", h.Clock().Now()), Marks{})
}
