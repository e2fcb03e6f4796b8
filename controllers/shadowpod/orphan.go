// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/controllers/internal/fresh"
)

// A pod is deleted when its ShadowPod is gone. The garbage collector of the cluster does that, too, but it is late after its start and while it is
// busy, and does nothing while the kube-controller-manager is away: until then a pod runs that nobody wants any more.

// deletionRetry is when a pod is looked at again that was not as the cache showed it.
const deletionRetry = 200 * time.Millisecond

// noteGone is a predicate that remembers a ShadowPod whose deletion the watch has delivered. One that a list lacks may have been restored since.
func (c *Controller) noteGone() predicate.Predicate {
	return predicate.Funcs{DeleteFunc: func(e event.DeleteEvent) bool {
		if !e.DeleteStateUnknown {
			c.gone.Set(client.ObjectKeyFromObject(e.Object), e.Object.GetUID())
		}
		return true
	}}
}

// shadowOf returns the ShadowPod that controls a pod, nil if none does.
func shadowOf(pod *corev1.Pod) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != offloading.ShadowPodKind || owner.APIVersion != offloading.GroupVersion.String() || owner.Name != pod.Name {
		return nil
	}
	return owner
}

// endOrphan deletes the pod of that name if its ShadowPod is gone, and lets it go: there is nothing left to record in. It returns after which
// time to call it again, 0 for never.
func (c *Controller) endOrphan(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	pod, err := c.pod(ctx, key)
	if err != nil {
		return 0, err
	}
	if pod == nil {
		c.gone.Drop(key)
		return 0, nil
	}
	owner := shadowOf(pod)
	if owner == nil {
		return 0, nil
	}
	if err := c.mustBeGone(ctx, key, owner.UID); err != nil {
		return 0, err
	}
	wait, err := c.deletePod(ctx, pod)
	if err != nil || wait > 0 {
		return wait, err
	}
	return 0, c.release(ctx, pod)
}

// endPredecessor is endOrphan for the pod of an earlier ShadowPod of the same name.
func (c *Controller) endPredecessor(ctx context.Context, pod *corev1.Pod) error {
	owner := shadowOf(pod)
	if owner == nil {
		return nil
	}
	if err := c.mustBeGone(ctx, client.ObjectKeyFromObject(pod), owner.UID); err != nil {
		return err
	}
	if _, err := c.deletePod(ctx, pod); err != nil { // the caller tries again in any case
		return err
	}
	return c.release(ctx, pod)
}

// endDependent deletes the pod of a ShadowPod that is being deleted in the foreground: it waits for the pod.
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

// waitsForDependents reports whether a ShadowPod is being deleted in the foreground.
func waitsForDependents(shadow *unstructured.Unstructured) bool {
	return shadow.GetDeletionTimestamp() != nil && slices.Contains(shadow.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

// mustBeGone returns an error unless the ShadowPod with that UID is gone for good. The API server is asked if the watch has not said so: after a
// restart, or when etcd was restored.
func (c *Controller) mustBeGone(ctx context.Context, key types.NamespacedName, uid types.UID) error {
	if gone, known := c.gone.Get(key); known && gone == uid {
		return nil
	}
	live := partial(kind.New().GroupVersionKind(), key)
	err := c.uncached.Get(ctx, key, live)
	switch {
	case err == nil && live.UID == uid:
		return fmt.Errorf("waiting for ShadowPod %s to be seen, without which its pod cannot be judged", key)
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("getting ShadowPod %s, %w", key, err)
	}
	return nil
}

// deletePod deletes a pod as the cache shows it: one that was released from its ShadowPod since then (--cascade=orphan) is another version. It has
// the grace period of its spec to end, or the shorter one that the consumer has asked for meanwhile.
func (c *Controller) deletePod(ctx context.Context, pod *corev1.Pod) (wait time.Duration, err error) {
	if pod.DeletionTimestamp != nil {
		return 0, nil
	}
	target := partial(corev1.SchemeGroupVersion.WithKind("Pod"), client.ObjectKeyFromObject(pod))
	err = c.client.Delete(ctx, target, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
	switch {
	case apierrors.IsConflict(err):
		return deletionRetry, nil
	case client.IgnoreNotFound(err) != nil:
		return 0, fmt.Errorf("deleting pod %s, %w", client.ObjectKeyFromObject(pod), err)
	}
	return 0, nil
}
