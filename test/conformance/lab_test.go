// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/test/support/testenv"
	"github.com/refract-project/refract/test/support/testenv/tools"
)

// TestUntaintPolicy checks that the policy removes only the taint that keeps pods away, and only from virtual nodes.
func TestUntaintPolicy(t *testing.T) {
	cluster := testenv.ForTest(t)[0]
	kubectl, err := tools.Kubectl()
	require.NoError(t, err)
	apply := exec.CommandContext(t.Context(), kubectl, "--kubeconfig="+cluster.Kubeconfig(), "apply", "--filename=-")
	apply.Stdin = bytes.NewReader(untaintPolicy)
	out, err := apply.CombinedOutput()
	require.NoError(t, err, "%s", out)
	nodes := kubernetes.NewForConfigOrDie(cluster.Config()).CoreV1().Nodes()

	taint := corev1.Taint{Key: wire.VirtualNodeTaint, Value: wire.VirtualNodeTaintValue, Effect: corev1.TaintEffectNoExecute}
	other := corev1.Taint{Key: "other", Effect: corev1.TaintEffectNoSchedule}
	// create creates a Node, and returns the keys of its taints.
	create := func(nodeType string, taints ...corev1.Taint) (string, error) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "n-", Labels: map[string]string{wire.TypeLabel: nodeType}}, Spec: corev1.NodeSpec{Taints: taints}}
		node, err := nodes.Create(t.Context(), node, metav1.CreateOptions{})
		keys := ""
		for _, taint := range node.Spec.Taints {
			keys += " " + taint.Key
		}
		return keys, err
	}
	const notReady = " node.kubernetes.io/not-ready"
	testenv.Eventually(t, func() error {
		got, err := create(wire.VirtualNodeType, taint)
		if err == nil && got != notReady && got != "" {
			err = fmt.Errorf("a virtual node has the taints%s", got)
		}
		return err
	})
	got, err := create(wire.VirtualNodeType, taint, other)
	require.NoError(t, err)
	require.NotContains(t, got, taint.Key)
	require.Contains(t, got, other.Key)
	got, err = create("plain", taint)
	require.NoError(t, err)
	require.Contains(t, got, taint.Key)
}
