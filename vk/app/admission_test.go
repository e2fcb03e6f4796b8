// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/test/support/lab"
)

// testAdmissionStands checks that running pods keep the image that the provider's admission has set, even if a new
// toleration in the offloadingPatch of the VirtualNode changes all ShadowPods. The namespace shop must be offloaded.
func testAdmissionStands(ctx context.Context, t *testing.T, l *lab.Lab) {
	admission := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource}
	}
	create(ctx, t, l.Provider, admission("mutatingadmissionpolicies"), "", `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: mirror}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{operations: [CREATE], apiGroups: [""], apiVersions: [v1], resources: [pods]}]}
  matchConditions: [{name: ours, expression: request.namespace == "shop-home"}]
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "replace", path: "/spec/containers/0/image", value: "mirror/" + object.spec.containers[0].image}]'}}]`)
	create(ctx, t, l.Provider, admission("mutatingadmissionpolicybindings"), "", `{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingAdmissionPolicyBinding, metadata: {name: mirror}, spec: {policyName: mirror}}`)
	there := l.Provider.Client.CoreV1().Pods("shop-home")
	require.NoError(t, l.Wait(ctx, "the policy to be in force", func(ctx context.Context) (string, error) {
		probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "none"}}}}
		probe, err := there.Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil || probe.Spec.Containers[0].Image != "mirror/none" {
			return "the image is not mirrored", err
		}
		return "", nil
	}))
	here := l.Consumer.Client.CoreV1().Pods("shop")
	for i := range 3 {
		_, err := here.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("mirrored-%d", i)},
			Spec: corev1.PodSpec{NodeName: lab.NodeName, Containers: []corev1.Container{{Name: "app", Image: "none"}},
				Tolerations: []corev1.Toleration{{Key: "virtual-node.liqo.io/not-allowed", Operator: corev1.TolerationOpExists}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	await := func(what string, is func(*corev1.Pod) bool) {
		t.Helper()
		require.NoError(t, l.Wait(ctx, what, func(ctx context.Context) (string, error) {
			for i := range 3 {
				pod, err := there.Get(ctx, fmt.Sprintf("mirrored-%d", i), metav1.GetOptions{})
				if err != nil || !is(pod) {
					return fmt.Sprintf("pod mirrored-%d: %v", i, err), nil
				}
			}
			return "", nil
		}))
	}
	await("the pods to run", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodRunning })
	patch := []byte(`{"spec":{"offloadingPatch":{"tolerations":[{"key":"node.kubernetes.io/disk-pressure","operator":"Exists","effect":"NoExecute","tolerationSeconds":77}]}}}`)
	_, err := l.Consumer.Dynamic.Resource(offloadingv1beta1.VirtualNodeGVR).Namespace(lab.TenantNamespace).Patch(ctx, lab.NodeName, types.MergePatchType, patch, metav1.PatchOptions{})
	require.NoError(t, err)
	await("the pods to tolerate the taint", func(pod *corev1.Pod) bool {
		return slices.ContainsFunc(pod.Spec.Tolerations, func(toleration corev1.Toleration) bool {
			return toleration.TolerationSeconds != nil && *toleration.TolerationSeconds == 77
		})
	})
	for i := range 3 {
		pod, err := there.Get(ctx, fmt.Sprintf("mirrored-%d", i), metav1.GetOptions{})
		require.NoError(t, err)
		if image := pod.Spec.Containers[0].Image; image != "mirror/none" {
			t.Errorf("pod %s has the image %s, want that of the provider's admission", pod.Name, image)
		}
		require.NoError(t, here.Delete(ctx, pod.Name, metav1.DeleteOptions{}))
	}
}
