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

// Kubernetes determines the expected number of pods of a budget from the scale of their controllers. Without a scale it
// allows no eviction, and a provider could not drain its nodes.
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
			for i := range 3 {
				shadow := shadowPod(namespace, fmt.Sprintf("web-%d", i))
				labels := shadow.GetLabels()
				labels["app"] = "web"
				shadow.SetLabels(labels)
				provider.Create(t, shadow)
				pod := awaitPod(t, shadow, "")
				provider.PatchStatus(t, pod, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
				pods, shadows = append(pods, pod), append(shadows, shadow)
			}
			spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
			budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}, Spec: spec}
			provider.Create(t, budget)
			allows := func(evictions int32) {
				controllertest.Eventually(t, fmt.Sprintf("%d evictions to be allowed", evictions), func() error {
					provider.Get(t, budget, namespace, "web")
					if s := budget.Status; s.ExpectedPods != 3 || s.DisruptionsAllowed != evictions || s.ObservedGeneration == 0 {
						return fmt.Errorf("of %d pods, %d are healthy and %d may be evicted: %v", s.ExpectedPods, s.CurrentHealthy, s.DisruptionsAllowed, s.Conditions)
					}
					return nil
				})
			}
			evict := func(pod *corev1.Pod) error {
				return provider.Client.SubResource("eviction").Create(t.Context(), pod, &policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}})
			}
			allows(1)
			require.NoError(t, evict(pods[0]))
			awaitPod(t, shadows[0], pods[0].UID) // a ShadowPod without a pod is not counted
			allows(0)
			err := evict(pods[1])
			require.True(t, apierrors.IsTooManyRequests(err), "the eviction of a second pod: %v", err)
			require.NoError(t, provider.Client.Get(t.Context(), client.ObjectKeyFromObject(pods[1]), &corev1.Pod{}))
		})
	}
}
