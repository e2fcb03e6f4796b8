// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/jsonpatch"
)

// FinalPhaseFinalizer is set on pods that may end by themselves. It keeps a deleted pod until its final phase is
// recorded (see the package comment).
const FinalPhaseFinalizer = "controllers.refract.io/final-phase"

// finalizers returns the finalizers for a pod with the given spec.
func finalizers(spec map[string]any) []string {
	policy, _ := spec["restartPolicy"].(string)
	if policy == "" || policy == string(corev1.RestartPolicyAlways) {
		return nil
	}
	return []string{FinalPhaseFinalizer}
}

// hasStopped reports whether all containers of a deleted pod have stopped. In this case the kubelet sets the grace
// period to 0. A forced deletion sets it to 0, too.
func hasStopped(pod *corev1.Pod) bool {
	grace := pod.DeletionGracePeriodSeconds
	return pod.DeletionTimestamp != nil && (grace == nil || *grace == 0)
}

// isHeld reports whether the pod was created by this controller and has the finalizer.
func isHeld(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == offloading.ShadowPodKind && slices.Contains(pod.Finalizers, FinalPhaseFinalizer)
}

// release removes the finalizer of the pod once it is being deleted. pod may be nil.
func (c *Controller) release(ctx context.Context, pod *corev1.Pod) error {
	if pod == nil || !isHeld(pod) {
		return nil
	}
	key := client.ObjectKeyFromObject(pod)
	// The version is compared because a pod that was restored with etcd has its finalizer again.
	version := string(pod.UID) + "/" + pod.ResourceVersion
	if last, ok := c.released.Get(key); ok && last == version {
		return nil // the finalizer is already removed, but the cache is not up to date yet
	}
	path := jsonpatch.Pointer("metadata", "finalizers", strconv.Itoa(slices.Index(pod.Finalizers, FinalPhaseFinalizer)))
	var changes jsonpatch.Patch
	changes.Test(path, FinalPhaseFinalizer)
	changes.Remove(path)
	patch, err := changes.For(pod.UID)
	if err != nil {
		return err
	}
	written := partial(corev1.SchemeGroupVersion.WithKind("Pod"), key)
	err = c.client.Patch(ctx, written, patch, client.FieldOwner(wire.ShadowPodFieldManager))
	// If the pod has changed, an event with its new state will follow.
	if client.IgnoreNotFound(err) != nil && !jsonpatch.IsOutdated(err) {
		return fmt.Errorf("releasing pod %s from its finalizer, %w", key, err)
	}
	c.released.Set(key, version)
	return nil
}

// pod returns the pod with the given name from the cache, or nil if it does not exist.
func (c *Controller) pod(ctx context.Context, key types.NamespacedName) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := c.client.Get(ctx, key, pod)
	if apierrors.IsNotFound(err) {
		c.released.Drop(key)
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting pod %s, %w", key, err)
	}
	return pod, nil
}
