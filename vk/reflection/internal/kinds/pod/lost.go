// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/pods"
)

// RefusalGrace is how long a pod that the provider has lost is kept while the provider refuses to run it again. By
// default, Kubernetes evicts pods from a node that is not ready after the same time.
const RefusalGrace = 5 * time.Minute

// showRefusal updates the status of a pod that does not exist on the provider, and that the provider refuses to run.
// The provider has revoked the access of this cluster (a drained Tenant), deleted the namespace, or has no quota left.
// A pod that has run is not ready, and fails after RefusalGrace, so that its controller replaces it. It fails at once
// if the access was revoked, because then the provider does not recreate it. While the provider still has the pod or
// its ShadowPod, or does not respond, the status is not changed. refusal is the error of the last attempt. showRefusal
// returns it until the pod fails, so that another attempt is made.
func (h *Handler) showRefusal(ctx context.Context, w *evaluation.Worker, v *podView, refusal error) error {
	switch {
	case refusal == nil:
		v.state.refused = time.Time{}
		return nil
	case v.shadow != nil || v.remote != nil || !isRefusal(refusal):
		return refusal
	}
	denied, withdrawn := h.reviewAccess(ctx, v, refusal)
	switch {
	case withdrawn && (wasOffloaded(v) || !pods.Untouched(v.status)):
		return h.failLost(ctx, w, v, fmt.Sprintf("the provider has withdrawn the access of this cluster, as refractctl drain tenant does, and the provider's pod is gone; "+
			"its controller replaces it. To have that done elsewhere, cordon the node; to use the provider again, %s", h.activateHint()))
	case denied && pods.Untouched(v.status):
		// The pod does not fail: its replacement would be refused, too, and fail as well, and so on.
		return evaluation.Directed(refusal, h.refusePod(ctx, w, v.local, fmt.Sprintf("the provider does not let this cluster create ShadowPods in namespace %s, as after refractctl drain tenant: %s. "+
			"To have the pod run elsewhere, cordon the node and delete the pod", v.scope.Remote, h.activateHint())))
	case pods.Untouched(v.status):
		return refusal
	}
	now := h.Clock().Now()
	if v.state.refused.IsZero() {
		v.state.refused = now
	}
	if wait := RefusalGrace - now.Sub(v.state.refused); wait > 0 {
		h.Queue.AddAfter(v.key, wait)
		if err := h.showInterruption(ctx, w, v, "the provider's pod is gone, and the provider refuses to run it again: see the Events of the pod"); err != nil {
			return evaluation.Directed(refusal, err)
		}
		return refusal
	}
	return h.failLost(ctx, w, v, fmt.Sprintf("the provider's pod is gone, and the provider has refused to run it again for %s; its controller replaces it. "+
		"To have that done elsewhere, cordon the node", RefusalGrace))
}

// failLost sets the phase of a pod to Failed if it is certain that the provider has nothing of the pod.
func (h *Handler) failLost(ctx context.Context, w *evaluation.Worker, v *podView, why string) error {
	if err := h.shadowIsGone(ctx, v); err != nil {
		return err
	}
	return h.rejectPod(ctx, w, v.local, corev1.PodFailed, wire.OffloadingAbortedReason, why)
}

// activateHint returns the remedy for a provider that has drained this cluster.
func (h *Handler) activateHint() string {
	return "ask its administrator to run refractctl activate tenant " + h.Options().LocalClusterID
}

// isRefusal reports whether an API server has refused to create a ShadowPod.
func isRefusal(err error) bool {
	class, _ := failure.Classify(err)
	return class.Answered() || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
