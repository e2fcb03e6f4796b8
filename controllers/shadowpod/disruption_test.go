// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowpod_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/controllers/internal/controllertest"
)

// TestDisruptionBudgetsCountOffloadedPods checks that a disruption budget counts offloaded pods. Kubernetes determines
// the expected number of pods from the scale of their controllers, so a ShadowPod has a scale. Without it, Kubernetes
// would allow no eviction of offloaded pods, and a provider could not drain its nodes.
func TestDisruptionBudgetsCountOffloadedPods(t *testing.T) {
	for name, spec := range map[string]policyv1.PodDisruptionBudgetSpec{
		"most":       {MaxUnavailable: ptr.To(intstr.FromInt32(1))},
		"most-share": {MaxUnavailable: ptr.To(intstr.FromString("30%"))},
		"least":      {MinAvailable: ptr.To(intstr.FromString("60%"))},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := extended(t)
			provider.StartManager(t)
			var pods []*corev1.Pod
			var shadows []*unstructured.Unstructured
			addPod := func() (*unstructured.Unstructured, *corev1.Pod) {
				shadow := shadowPod(namespace, fmt.Sprintf("web-%d", len(namespaceShadows(t, namespace))))
				labels := shadow.GetLabels()
				labels["app"] = "web"
				shadow.SetLabels(labels)
				provider.Create(t, shadow)
				return shadow, awaitPod(t, shadow, "")
			}
			for range 3 {
				shadow, pod := addPod()
				provider.PatchStatus(t, pod, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
				pods, shadows = append(pods, pod), append(shadows, shadow)
			}
			spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
			budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}, Spec: spec}
			provider.Create(t, budget)
			allows := func(evictions, expected int32) {
				controllertest.Eventually(t, fmt.Sprintf("%d evictions to be allowed", evictions), func() error {
					provider.Get(t, budget, namespace, "web")
					if s := budget.Status; s.ExpectedPods != expected || s.DisruptionsAllowed != evictions || s.ObservedGeneration == 0 {
						return fmt.Errorf("of %d pods, %d are healthy and %d may be evicted: %v", s.ExpectedPods, s.CurrentHealthy, s.DisruptionsAllowed, s.Conditions)
					}
					return nil
				})
			}
			evict := func(pod *corev1.Pod) error {
				return provider.Client.SubResource("eviction").Create(t.Context(), pod, &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}})
			}
			allows(1, 3)
			require.NoError(t, evict(pods[0]))
			awaitPod(t, shadows[0], pods[0].UID)
			// Until Kubernetes has counted the replacement of a pod, the ShadowPod does not count, and the budget may
			// allow one more eviction. A pod that is created later is counted after the replacement.
			addPod()
			allows(0, 4)
			err := evict(pods[1])
			require.True(t, apierrors.IsTooManyRequests(err), "the eviction of a second pod: %v", err)
			require.NoError(t, provider.Client.Get(t.Context(), client.ObjectKeyFromObject(pods[1]), &corev1.Pod{}))
		})
	}
}
