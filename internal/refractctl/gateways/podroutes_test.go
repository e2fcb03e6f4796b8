// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/api/wire"
)

// TestExplainPodRoutes checks in which clusters gateways must read the addresses of pods.
func TestExplainPodRoutes(t *testing.T) {
	node := func(name string, labels map[string]string, ranges ...string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.NodeSpec{PodCIDRs: ranges}}
	}
	pod := func(node, ip string, hostNetwork bool) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.PodSpec{NodeName: node, HostNetwork: hostNetwork},
			Status: corev1.PodStatus{PodIP: ip}}
	}
	nodes := []corev1.Node{
		node("a", nil, "10.1.1.0/24", "fd00:1::/64"),
		node("milan", map[string]string{wire.TypeLabel: wire.VirtualNodeType}),
		node("win", map[string]string{corev1.LabelOSStable: "windows"}),
	}
	usual := []corev1.Pod{pod("a", "10.1.1.5", false), pod("a", "192.168.0.1", true), pod("a", "", false), pod("milan", "10.61.0.5", false), pod("win", "10.9.0.1", false), pod("", "", false)}
	require.Empty(t, explainPodRoutes(nodes, usual))
	require.Equal(t, "pod shop/web has the address 10.1.7.5, which is outside of spec.podCIDRs of node a", explainPodRoutes(nodes, append(usual, pod("a", "10.1.7.5", false))))
	require.Equal(t, "node b has no spec.podCIDRs", explainPodRoutes(append(nodes, node("b", nil)), nil))
	require.Equal(t, "node b has no spec.podCIDRs", explainPodRoutes(append(nodes, node("b", nil, "fd00:2::/64")), nil))
}
