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
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/shadowpod"
	"github.com/refract-project/refract/test/support/testenv"
)

// TestVolumesThatAnOlderProviderDoesNotHave checks that a pod with an image volume is not created if the API server of
// an older provider does not support such volumes. The API server would create the pod without the volume and its
// mount. It makes no difference whether the pod has another volume.
func TestVolumesThatAnOlderProviderDoesNotHave(t *testing.T) {
	testenv.NeedControlPlane(t)
	cluster, err := testenv.Start(t.Context(), testenv.Options{Name: "older", CRDPaths: []string{"../../api/crds"}, NoScheduler: true,
		ExtraAPIServerArgs: []string{"--emulated-version=1.34", "--feature-gates=ImageVolume=false"}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, cluster.Stop()) })
	scheme, err := controllers.Scheme()
	require.NoError(t, err)
	older, err := client.New(cluster.Config(), client.Options{Scheme: scheme})
	require.NoError(t, err)
	require.NoError(t, older.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}))

	recorder := events.NewFakeRecorder(100)
	controller := shadowpod.NewController(older, older, recorder, shadowpod.Options{Workers: 1, Clock: clock.RealClock{},
		Version: func(context.Context) (string, error) { return "v1.34.0", nil }})
	model := map[string]any{"name": "model", "image": map[string]any{"reference": "registry.example/model:1"}}
	cache := map[string]any{"name": "cache", "emptyDir": map[string]any{}}
	mounts := []any{map[string]any{"name": "model", "mountPath": "/model"}}
	for name, volumes := range map[string][]any{"with-another": {cache, model}, "alone": {model}} {
		shadow := set(shadowPod("shop", name), volumes, "spec", "pod", "volumes")
		set(shadow, []any{map[string]any{"name": "main", "image": "a", "volumeMounts": mounts}}, "spec", "pod", "containers")
		require.NoError(t, older.Create(t.Context(), shadow))
		_, err := controller.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(shadow)})
		require.ErrorContains(t, err, "drops spec.volumes.model.image.reference", name)
		assert.Contains(t, <-recorder.Events, "(Kubernetes v1.34.0) drops spec.volumes.model.image.reference", name)
	}
	pods := &corev1.PodList{}
	require.NoError(t, older.List(t.Context(), pods))
	assert.Empty(t, pods.Items)
}
