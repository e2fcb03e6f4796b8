// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/testenv"
)

// The pods and DaemonSets of the suite tolerate virtual nodes once, whether they have tolerations of their own or not; those of others do not.
func TestToleratePolicy(t *testing.T) {
	cluster := testenv.ForTest(t)[0]
	kubectl, err := testenv.Kubectl()
	require.NoError(t, err)
	apply := exec.CommandContext(t.Context(), kubectl, "--kubeconfig="+cluster.Kubeconfig(), "apply", "--filename=-")
	apply.Stdin = bytes.NewReader(toleratePolicy)
	out, err := apply.CombinedOutput()
	require.NoError(t, err, "%s", out)
	clients := kubernetes.NewForConfigOrDie(cluster.Config())
	for name, labels := range map[string]map[string]string{"suite": {runLabel: "x"}, "other": nil} {
		_, err := clients.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}

	other := corev1.Toleration{Key: "other", Operator: corev1.TolerationOpExists}
	count := func(tolerations []corev1.Toleration) (n int) {
		for _, toleration := range tolerations {
			if toleration.MatchToleration(&corev1.Toleration{Key: wire.VirtualNodeTaint, Operator: corev1.TolerationOpExists}) {
				n++
			}
		}
		return n
	}
	spec := func(tolerations ...corev1.Toleration) corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}, Tolerations: tolerations}
	}
	createPod := func(namespace string, tolerations ...corev1.Toleration) ([]corev1.Toleration, error) {
		pod, err := clients.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "p-"}, Spec: spec(tolerations...)}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		return pod.Spec.Tolerations, nil
	}
	testenv.Eventually(t, func() error {
		if _, err := createPod("other"); err != nil {
			return err // its ServiceAccount is still missing
		}
		got, err := createPod("suite")
		if err == nil && count(got) != 1 {
			err = fmt.Errorf("a pod has the tolerations %v", got)
		}
		return err
	})
	got, err := createPod("suite", other)
	require.NoError(t, err)
	require.Equal(t, 1, count(got))
	require.True(t, slices.Contains(got, other))
	got, err = createPod("other")
	require.NoError(t, err)
	require.Zero(t, count(got))

	labels := map[string]string{"app": "a"}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec(other)},
	}}
	set, err = clients.AppsV1().DaemonSets("suite").Create(t.Context(), set, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, 1, count(set.Spec.Template.Spec.Tolerations))
	set.Labels = labels
	set, err = clients.AppsV1().DaemonSets("suite").Update(t.Context(), set, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, 1, count(set.Spec.Template.Spec.Tolerations), "an update adds no other")
}
