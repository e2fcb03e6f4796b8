// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/controllers/internal/fresh"
	"github.com/refract-project/refract/controllers/internal/shadows"
)

// endOrphan deletes the pod with the given name if its ShadowPod is gone. It also removes the pod's finalizer, because
// its phase cannot be recorded without a ShadowPod. It returns the delay until the next call; 0 means that none is
// needed.
func (c *Controller) endOrphan(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	pod, err := c.pod(ctx, key)
	if err != nil {
		return 0, err
	}
	if pod == nil {
		c.gone.Forget(key)
		return 0, nil
	}
	owner := kind.OwnerOf(pod)
	if owner == nil {
		return 0, nil
	}
	if err := c.gone.Check(ctx, key, owner.UID); err != nil {
		return 0, err
	}
	wait, err := c.deletePod(ctx, pod)
	if err != nil || wait > 0 {
		return wait, err
	}
	return 0, c.release(ctx, pod)
}

// endPredecessor deletes the pod of an earlier ShadowPod with the same name, as endOrphan does.
func (c *Controller) endPredecessor(ctx context.Context, pod *corev1.Pod) error {
	owner := kind.OwnerOf(pod)
	if owner == nil {
		return nil
	}
	if err := c.gone.Check(ctx, client.ObjectKeyFromObject(pod), owner.UID); err != nil {
		return err
	}
	if _, err := c.deletePod(ctx, pod); err != nil { // the caller retries in any case
		return err
	}
	return c.release(ctx, pod)
}

// endDependent deletes the pod of a ShadowPod that is being deleted in the foreground. The foreground deletion waits
// until the pod is gone.
func (c *Controller) endDependent(ctx context.Context, shadow *unstructured.Unstructured, pod *corev1.Pod) (time.Duration, error) {
	if pod == nil || !metav1.IsControlledBy(pod, shadow) {
		return 0, nil
	}
	if pod.DeletionTimestamp == nil {
		if err := fresh.Check(ctx, c.client, c.uncached, shadow); err != nil {
			return 0, client.IgnoreNotFound(err)
		}
	}
	wait, err := c.deletePod(ctx, pod)
	if err != nil || wait > 0 {
		return wait, err
	}
	return 0, c.release(ctx, pod)
}

// deletePod deletes a pod with the grace period of its spec, or with a shorter one if the consumer has requested it
// in the meantime.
func (c *Controller) deletePod(ctx context.Context, pod *corev1.Pod) (wait time.Duration, err error) {
	target := pod.DeepCopy()
	target.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return shadows.Delete(ctx, c.client, target)
}
