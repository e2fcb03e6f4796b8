// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/controllers/internal/shadows"
	"github.com/refract-project/refract/controllers/shadowpod"
	"github.com/refract-project/refract/internal/dynamicclient"
)

// withEnv adds count variables to the container of shadow.
func withEnv(shadow *unstructured.Unstructured, count int, value string) *unstructured.Unstructured {
	env := make([]any, count)
	for i := range env {
		env[i] = map[string]any{"name": "A", "value": value}
	}
	return set(shadow, []any{map[string]any{"name": "main", "image": "registry.example/main:1", "env": env}}, "spec", "pod", "containers")
}

func TestALargeShadowPodIsRefusedUntilItIsSmaller(t *testing.T) {
	namespace := extended(t)
	provider.StartManager(t)
	for name, shadow := range map[string]*unstructured.Unstructured{
		"values":   withEnv(shadowPod(namespace, "values"), 20_000, ""),
		"bytes":    withEnv(shadowPod(namespace, "bytes"), 1, strings.Repeat("x", 600<<10)),
		"metadata": shadowPod(namespace, "metadata"),
	} {
		if name == "metadata" {
			shadow.SetAnnotations(map[string]string{"note": strings.Repeat("x", 100<<10)})
		}
		provider.Create(t, shadow)
		controllertest.Eventually(t, "the refusal of "+name, func() error {
			provider.Get(t, shadow, namespace, name)
			if status, message := admitted(shadow); status != "False" || !strings.Contains(message, "more than") || !strings.Contains(message, "; reduce it") {
				return fmt.Errorf("the condition is %q: %s", status, message)
			}
			return nil
		})
		assert.False(t, podExists(t, namespace, name), name)
		provider.AwaitEvent(t, namespace, "ShadowPod", name, "RefusedByProvider")

		small := shadowPod(namespace, name)
		small.SetResourceVersion(shadow.GetResourceVersion())
		require.NoError(t, provider.Client.Update(t.Context(), small))
		awaitPod(t, small, "")
	}
}

// TestAPodOfALargeSpecIsRecreated checks that a pod whose large spec is not cached is recreated. The spec is read when
// it is needed.
func TestAPodOfALargeSpecIsRecreated(t *testing.T) {
	namespace := extended(t)
	provider.StartManager(t)
	shadow := withEnv(shadowPod(namespace, "large"), 100, strings.Repeat("x", 1<<10))
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	assert.Len(t, pod.Spec.Containers[0].Env, 100)
	provider.Delete(t, pod)
	pod = awaitPod(t, shadow, pod.UID)
	assert.Len(t, pod.Spec.Containers[0].Env, 100)

	provider.Get(t, shadow, namespace, "large")
	provider.Patch(t, shadow, `{"spec":{"pod":{"activeDeadlineSeconds":86400}}}`)
	controllertest.Eventually(t, "the change of the spec", func() error {
		provider.Get(t, pod, namespace, "large")
		if pod.Spec.ActiveDeadlineSeconds == nil {
			return fmt.Errorf("the deadline is not set")
		}
		return nil
	})
}

// TestAPodOfAShadowPodThatHasBecomeTooLargeIsLeftAlone checks that the running pod of a ShadowPod that has become too
// large stays unchanged, including its labels.
func TestAPodOfAShadowPodThatHasBecomeTooLargeIsLeftAlone(t *testing.T) {
	namespace := extended(t)
	provider.StartManager(t)
	shadow := shadowPod(namespace, "grows")
	provider.Create(t, shadow)
	pod := awaitPod(t, shadow, "")
	provider.Get(t, shadow, namespace, "grows")
	require.NoError(t, provider.Client.Update(t.Context(), withEnv(shadow, 20_000, "")))
	provider.AwaitEvent(t, namespace, "ShadowPod", "grows", "RefusedByProvider")
	now := &corev1.Pod{}
	provider.Get(t, now, namespace, "grows")
	assert.Equal(t, pod.UID, now.UID)
	assert.Equal(t, pod.Labels, now.Labels)
	assert.Equal(t, pod.Annotations, now.Annotations)
}

// TestARefusedShadowPodCostsItsKey checks that the cache holds little more than the identity of a ShadowPod that has no
// pod or was refused.
func TestARefusedShadowPodCostsItsKey(t *testing.T) {
	compact := transformOf(t)
	shadow := func(phase, status string, generation int64, bytes int) *unstructured.Unstructured {
		s := shadowPod("shop", "a")
		s.SetAnnotations(map[string]string{"note": strings.Repeat("x", bytes)})
		s.Object["spec"] = fmt.Sprintf(`{"pod":{"containers":[{"name":%q}]}}`, strings.Repeat("x", bytes))
		s.SetGeneration(generation)
		s.Object["status"] = map[string]any{"phase": phase, "conditions": []any{map[string]any{
			"type": "Admitted", "status": status, "observedGeneration": int64(2), "reason": "r", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}}}
		return s
	}
	for name, tc := range map[string]struct {
		shadow *unstructured.Unstructured
		held   bool
	}{
		"admitted":                    {shadow("Running", "True", 2, 16<<10), true},
		"admitted, with a large spec": {shadow("Running", "True", 2, 40<<10), false},
		"refused":                     {shadow("Unknown", "False", 2, 16<<10), false},
		"refused, of ordinary size":   {shadow("Unknown", "False", 2, 2<<10), true},
		"refused, and changed since":  {shadow("Unknown", "False", 3, 16<<10), true},
		"finished":                    {shadow("Succeeded", "True", 2, 10), false},
	} {
		kept, err := compact(tc.shadow.DeepCopy())
		require.NoError(t, err)
		found := kept.(*unstructured.Unstructured)
		_, held := found.Object["spec"]
		assert.Equal(t, tc.held, held, name)
		assert.Equal(t, !tc.held, shadows.IsCompact(found), name)
		assert.Equal(t, !tc.held, shadows.LacksMetadata(found), name)
		assert.Equal(t, "consumer", found.GetLabels()[wire.OriginLabel], name)

		// A change to content that is not in the cache is still detected.
		changed := tc.shadow.DeepCopy()
		changed.SetAnnotations(map[string]string{"note": strings.Repeat("y", len(tc.shadow.GetAnnotations()["note"]))})
		other, err := compact(changed)
		require.NoError(t, err)
		assert.NotEqual(t, found.GetAnnotations(), other.(*unstructured.Unstructured).GetAnnotations(), name)
	}
}

func transformOf(t *testing.T) func(any) (any, error) {
	t.Helper()
	for object, options := range shadowpod.CacheOptions() {
		if _, ok := object.(*unstructured.Unstructured); ok {
			return options.Transform
		}
	}
	t.Fatal("ShadowPods are not transformed")
	return nil
}

// TestHostileShadowPodsTakeLittleMemory checks that 400 hostile ShadowPods, as the API server sends them, take no more
// memory than 400 names.
func TestHostileShadowPodsTakeLittleMemory(t *testing.T) {
	namespace := extended(t)
	decoding := shadowpod.Decoding()
	require.Len(t, decoding, 1)
	for kind, options := range decoding {
		config := provider.Config()
		config.QPS = -1
		dynamicClient, err := dynamicclient.New(config, options)
		require.NoError(t, err)
		provider.Create(t, withEnv(shadowPod(namespace, "hostile"), 30_000, ""))
		resource := dynamicClient.Resource(kind.GroupVersion().WithResource("shadowpods")).Namespace(namespace)
		held := make([]*unstructured.Unstructured, 400)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range held {
			shadow, err := resource.Get(t.Context(), "hostile", metav1.GetOptions{})
			require.NoError(t, err)
			kept, err := transformOf(t)(shadow)
			require.NoError(t, err)
			held[i] = kept.(*unstructured.Unstructured)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		assert.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(8<<20), "bytes of %d objects", len(held))
		assert.NotEmpty(t, dynamicclient.Excess(held[0]))
		runtime.KeepAlive(held)
	}
	require.NoError(t, provider.Client.DeleteAllOf(t.Context(), shadowPod(namespace, ""), client.InNamespace(namespace), client.MatchingLabels{wire.OriginLabel: "consumer"}))
}
