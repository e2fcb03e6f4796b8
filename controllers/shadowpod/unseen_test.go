// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/refract-project/refract/controllers/internal/ledger"
	"github.com/refract-project/refract/controllers/shadowpod"
)

// withoutPods is a client that shows no pods while isBehind is true, like a cache whose watch has not received them.
type withoutPods struct {
	client.Client
	isBehind bool
}

func (w *withoutPods) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if _, ok := object.(*corev1.Pod); ok && w.isBehind {
		return apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
	}
	return w.Client.Get(ctx, key, object, options...)
}

func (w *withoutPods) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, ok := list.(*corev1.PodList); ok && w.isBehind {
		return nil
	}
	return w.Client.List(ctx, list, options...)
}

// TestUnseenPodsCountUntilTheyAreGone checks that a pod that the cache does not show counts in its Quota also after its
// ShadowPod was deleted, or replaced by another of the same name, and that nothing stays reserved after the pod is gone.
func TestUnseenPodsCountUntilTheyAreGone(t *testing.T) {
	namespace, _ := limited(t, "pisa", quantities("cpu", "1", "pods", "1"))
	cached := &withoutPods{Client: provider.Client, isBehind: true}
	ledger := ledger.New(cached, ledger.Options{})
	controller := shadowpod.NewController(cached, provider.Client, events.NewFakeRecorder(100), shadowpod.Options{Workers: 1, Clock: clock.RealClock{}, Quotas: ledger})
	reconciled := func(name string) (reconcile.Result, error) {
		return controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: name}})
	}
	requireReconciled := func(name string) reconcile.Result {
		t.Helper()
		result, err := reconciled(name)
		require.NoError(t, err)
		return result
	}
	first, second := asking(namespace, "first", "pisa", "900m"), asking(namespace, "second", "pisa", "900m")
	provider.Create(t, first)
	requireReconciled("first")
	pod := awaitPod(t, first, "")
	provider.Create(t, second)

	provider.Delete(t, first)
	provider.AwaitGone(t, first)
	assert.Positive(t, requireReconciled("first").RequeueAfter, "the reservation is compared with the cache again")
	requireReconciled("second")
	assert.False(t, podExists(t, namespace, "second"), "the pod of the deleted ShadowPod does not count")

	again := asking(namespace, "first", "pisa", "100m")
	provider.Create(t, again)
	_, err := reconciled("first")
	require.ErrorContains(t, err, "of the previous ShadowPod")
	requireReconciled("second")
	assert.False(t, podExists(t, namespace, "second"), "the pod of the replaced ShadowPod does not count")

	provider.Delete(t, again)
	provider.AwaitGone(t, again)
	provider.AwaitGone(t, pod)
	assert.Zero(t, requireReconciled("first").RequeueAfter)
	requireReconciled("second")
	assert.True(t, podExists(t, namespace, "second"), "resources of a pod that is gone stay reserved")
}
