// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/shadowpod"
	"github.com/refract-project/refract/test/support/testenv"
)

// awaitEnding waits until the pod is being deleted, with the grace period of its spec.
func awaitEnding(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	controllertest.Eventually(t, "pod "+pod.Name+" to be deleted", func() error {
		if provider.Get(t, pod, pod.Namespace, pod.Name); pod.DeletionTimestamp == nil {
			return errors.New("it is not")
		}
		return nil
	})
	assert.Equal(t, pod.Spec.TerminationGracePeriodSeconds, pod.DeletionGracePeriodSeconds)
}

// started creates a ShadowPod and returns its pod, which is bound to a node.
func started(t *testing.T, shadow *unstructured.Unstructured) *corev1.Pod {
	t.Helper()
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	bind(t, pod)
	return pod
}

// TestAPodIsDeletedWithItsShadowPod checks that a pod is deleted with its ShadowPod. The garbage collector of this
// cluster is disabled, so only the controller deletes pods.
func TestAPodIsDeletedWithItsShadowPod(t *testing.T) {
	namespace := extended(t)
	m := provider.StartManager(t)
	pods := map[string]*corev1.Pod{}
	for name, propagation := range map[string]metav1.DeletionPropagation{"background": metav1.DeletePropagationBackground, "foreground": metav1.DeletePropagationForeground} {
		shadow := shadowPod(namespace, name)
		pods[name] = started(t, shadow)
		require.NoError(t, provider.Client.Delete(t.Context(), shadow, client.PropagationPolicy(propagation)))
	}
	task := task(namespace, "task")
	pods["task"] = started(t, task)
	provider.Delete(t, task)
	for name, pod := range pods {
		awaitEnding(t, pod)
		settle(t, namespace)
		assert.LessOrEqual(t, len(m.Writes.About("DELETE", namespace, name)), 1, "deletions of pod %s", name)
	}
	ended := pods["task"]
	testenv.Eventually(t, func() error {
		err := provider.Client.Get(t.Context(), client.ObjectKeyFromObject(ended), ended)
		if err == nil && len(ended.Finalizers) > 0 {
			err = fmt.Errorf("pod task still has the finalizers %q", ended.Finalizers)
		}
		return client.IgnoreNotFound(err)
	})
}

// TestAnOrphanIsFoundAtTheStart checks that the pod of a ShadowPod that was deleted while no controller ran is found
// and deleted at the start, and that pods that were released from their ShadowPod stay.
func TestAnOrphanIsFoundAtTheStart(t *testing.T) {
	namespace := extended(t)
	first := provider.StartManager(t)
	orphan, released := shadowPod(namespace, "orphan"), shadowPod(namespace, "released")
	ended, kept := started(t, orphan), started(t, released)
	first.Stop(t)
	provider.Patch(t, kept, `{"metadata":{"ownerReferences":null}}`) // as kubectl delete --cascade=orphan does
	provider.Delete(t, orphan)
	provider.Delete(t, released)

	provider.StartManager(t)
	awaitEnding(t, ended)
	settle(t, namespace)
	provider.Get(t, kept, namespace, kept.Name)
	assert.Nil(t, kept.DeletionTimestamp, "a pod without an owner was deleted")
}

// TestTheNextShadowPodEndsThePodOfTheLast checks that a recreated ShadowPod does not wait until the garbage collector
// has deleted the old pod.
func TestTheNextShadowPodEndsThePodOfTheLast(t *testing.T) {
	namespace := extended(t)
	first := provider.StartManager(t)
	former := shadowPod(namespace, "again")
	provider.Create(t, former)
	pod := awaitPod(t, former, "")
	first.Stop(t)
	provider.Delete(t, former)
	next := shadowPod(namespace, "again")
	provider.Create(t, next)
	provider.StartManager(t)
	assert.True(t, metav1.IsControlledBy(awaitPod(t, next, pod.UID), next))
}

// outdated is a cache that lacks a ShadowPod, or has an earlier version of a pod.
type outdated struct {
	client.Client
	pod *corev1.Pod
}

func (o *outdated) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	switch object := object.(type) {
	case *unstructured.Unstructured:
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	case *corev1.Pod:
		if o.pod != nil {
			o.pod.DeepCopyInto(object)
			return nil
		}
	}
	return o.Client.Get(ctx, key, object, options...)
}

// TestNoPodIsDeletedOnAnOutdatedCache checks that no pod is deleted because of an outdated cache, which may lack an
// existing ShadowPod, or show a former owner of a pod.
func TestNoPodIsDeletedOnAnOutdatedCache(t *testing.T) {
	namespace := extended(t)
	running := provider.StartManager(t)
	shadow, released := shadowPod(namespace, "late"), shadowPod(namespace, "released")
	pod, before := started(t, shadow), started(t, released)
	running.Stop(t)
	cache := &outdated{Client: provider.Client}
	controller := shadowpod.NewController(cache, provider.Client, events.NewFakeRecorder(100), shadowpod.Options{Workers: 1, Clock: clock.RealClock{}})
	reconcileOne := func(name string) (reconcile.Result, error) {
		return controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}})
	}

	_, err := reconcileOne("late")
	require.ErrorContains(t, err, "waiting for ShadowPod")
	provider.Get(t, pod, namespace, "late")
	assert.Nil(t, pod.DeletionTimestamp)

	provider.Get(t, before, namespace, "released")
	cache.pod = before.DeepCopy()
	provider.Patch(t, before, `{"metadata":{"ownerReferences":null}}`)
	provider.Delete(t, released)
	provider.AwaitGone(t, released)
	result, err := reconcileOne("released")
	require.NoError(t, err)
	assert.Positive(t, result.RequeueAfter, "it is looked at again")
	provider.Get(t, before, namespace, "released")
	assert.Nil(t, before.DeletionTimestamp)

	cache.pod = nil
	provider.Delete(t, shadow)
	provider.AwaitGone(t, shadow)
	_, err = reconcileOne("late")
	require.NoError(t, err)
	awaitEnding(t, pod)
	assert.Equal(t, ptr.To[int64](30), pod.DeletionGracePeriodSeconds)
}
