// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/internal/jsonpatch"
	"github.com/refract-project/refract/internal/podend"
)

// finish is the final phase of the pod of one ShadowPod.
type finish struct {
	shadow types.UID
	phase  corev1.PodPhase
}

// recording is a phase that was written to a version of a ShadowPod.
type recording struct {
	resourceVersion string
	phase           corev1.PodPhase
	hash            string
}

// notice records the final phase of a pod when its event arrives. By the time the ShadowPod is reconciled, the pod
// may be gone or being deleted, and would look like a pod that was stopped and must be recreated.
func (c *Controller) notice(pod *corev1.Pod) {
	owner := metav1.GetControllerOf(pod)
	phase := podend.FinalPhase(pod)
	if phase == "" || owner == nil || owner.Kind != offloading.ShadowPodKind {
		return
	}
	c.finished.Set(client.ObjectKeyFromObject(pod), finish{shadow: owner.UID, phase: phase})
}

// recordedPhase returns the phase in the status of shadow. It is empty if there is none.
func recordedPhase(shadow *unstructured.Unstructured) corev1.PodPhase {
	phase, _, err := unstructured.NestedString(shadow.Object, "status", "phase")
	if err != nil {
		return ""
	}
	return corev1.PodPhase(phase)
}

// worthRecording reports whether the phase is new information for a reader of the status. A missing phase means the
// same as Pending.
func worthRecording(recorded, phase corev1.PodPhase) bool {
	switch phase {
	case recorded, "", corev1.PodUnknown:
		return false
	case corev1.PodPending:
		return recorded != "" && recorded != corev1.PodUnknown
	}
	return true
}

// early returns the remaining time until the first phase of a young pod must be recorded.
func (c *Controller) early(shadow *unstructured.Unstructured, pod *corev1.Pod) time.Duration {
	if recorded := recordedPhase(shadow); recorded != "" && recorded != corev1.PodUnknown || !worthRecording("", pod.Status.Phase) {
		return 0
	}
	return max(0, c.options.RecordAfter-c.options.Clock.Since(pod.CreationTimestamp.Time))
}

// record writes the phase and the hash of the pod's spec to the status of shadow, unless the status already has them.
func (c *Controller) record(ctx context.Context, shadow *unstructured.Unstructured, phase corev1.PodPhase, hash string) error {
	if !worthRecording(recordedPhase(shadow), phase) {
		if phase = recordedPhase(shadow); hash == recordedHash(shadow) || phase == "" || phase == corev1.PodUnknown {
			return nil
		}
	}
	key := client.ObjectKeyFromObject(shadow)
	now := recording{resourceVersion: shadow.GetResourceVersion(), phase: phase, hash: hash}
	if last, ok := c.recorded.Get(key); ok && last == now {
		return nil // the phase is already written, but the cache is not up to date yet
	}
	patch, err := phasePatch(shadow, phase, hash).For(shadow.GetUID())
	if err != nil {
		return err
	}
	written := partial(shadow.GroupVersionKind(), key)
	if err := c.client.Status().Patch(ctx, written, patch); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("recording phase %s of ShadowPod %s, %w", phase, key, err)
	}
	c.recorded.Set(key, now)
	return nil
}

func phasePatch(shadow *unstructured.Unstructured, phase corev1.PodPhase, hash string) jsonpatch.Patch {
	var patch jsonpatch.Patch
	if _, ok := shadow.Object["status"].(map[string]any); !ok {
		patch.Add("/status", map[string]any{})
	}
	patch.Add("/status/phase", phase)
	if hash != recordedHash(shadow) {
		patch.Add("/status/podSpecHash", hash)
	}
	return patch
}
