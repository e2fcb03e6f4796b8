// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/refract-project/refract/controllers/shadowpod"
)

// behind is a client that reads an outdated version of one ShadowPod, like a cache for some seconds after etcd was
// restored.
type behind struct {
	client.Client
	shown *unstructured.Unstructured
}

func (b *behind) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if shadow, ok := object.(*unstructured.Unstructured); ok && b.shown != nil && shadow.GetKind() == b.shown.GetKind() {
		b.shown.DeepCopyInto(shadow)
		return nil
	}
	return b.Client.Get(ctx, key, object, options...)
}

// TestNoPodForAShadowPodThatIsNoMore checks that a pod is not recreated for a ShadowPod that exists only in the cache.
// Such a pod would start, and then be deleted because its owner does not exist.
func TestNoPodForAShadowPodThatIsNoMore(t *testing.T) {
	namespace := extended(t)
	cached := &behind{Client: provider.Client}
	controller := shadowpod.NewController(cached, provider.Client, events.NewFakeRecorder(100), shadowpod.Options{Workers: 1, Clock: clock.RealClock{}})
	reconciled := func() reconcile.Result {
		t.Helper()
		result, err := controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "restored"}})
		require.NoError(t, err)
		return result
	}
	first := shadowPod(namespace, "restored")
	provider.Create(t, first)
	reconciled()
	pod := awaitPod(t, first, "")
	cached.shown = first.DeepCopy()

	provider.Patch(t, pod, `{"metadata":{"finalizers":null}}`)
	require.NoError(t, provider.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	provider.AwaitGone(t, pod)
	provider.Delete(t, first)
	provider.AwaitGone(t, first)
	second := shadowPod(namespace, "restored")
	provider.Create(t, second)

	assert.Positive(t, reconciled().RequeueAfter, "it is looked at again")
	list := &corev1.PodList{}
	require.NoError(t, provider.Client.List(t.Context(), list, client.InNamespace(namespace)))
	assert.Empty(t, list.Items, "a pod was created for ShadowPod %s", first.GetUID())

	cached.shown = nil
	reconciled()
	assert.True(t, metav1.IsControlledBy(awaitPod(t, second, ""), second))
}
