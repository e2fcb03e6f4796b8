// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
)

// podsAtOnce is the number of pods that are listed in one request.
const podsAtOnce = 500

// ExplainPodRoutes returns why gateways of a cluster must read the addresses of pods to find their nodes
// (networking.gateways.podRoutes): a node without pod ranges, or a pod outside of the ranges of its node. It returns ""
// if the ranges of nodes are sufficient.
func ExplainPodRoutes(ctx context.Context, c client.Client) (string, error) {
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return "", fmt.Errorf("listing Nodes, %w", err)
	}
	pods := &corev1.PodList{}
	for {
		page := []client.ListOption{client.Limit(podsAtOnce), client.Continue(pods.Continue)}
		if err := c.List(ctx, pods, page...); err != nil {
			return "", fmt.Errorf("listing pods, %w", err)
		}
		if why := explainPodRoutes(nodes.Items, pods.Items); why != "" || pods.Continue == "" {
			return why, nil
		}
	}
}

func explainPodRoutes(nodes []corev1.Node, pods []corev1.Pod) string {
	ranges := map[string][]netip.Prefix{}
	for i := range nodes {
		node := &nodes[i]
		if node.Labels[wire.TypeLabel] == wire.VirtualNodeType || node.Labels[corev1.LabelOSStable] == string(corev1.Windows) {
			continue
		}
		for _, text := range node.Spec.PodCIDRs {
			if r, err := netip.ParsePrefix(text); err == nil && r.Addr().Is4() {
				ranges[node.Name] = append(ranges[node.Name], r)
			}
		}
		if len(ranges[node.Name]) == 0 {
			return fmt.Sprintf("node %s has no spec.podCIDRs", node.Name)
		}
	}
	for i := range pods {
		pod := &pods[i]
		own, isReal := ranges[pod.Spec.NodeName]
		address, err := netip.ParseAddr(pod.Status.PodIP)
		if !isReal || pod.Spec.HostNetwork || err != nil || !address.Is4() {
			continue
		}
		if !slices.ContainsFunc(own, func(r netip.Prefix) bool { return r.Contains(address) }) {
			return fmt.Sprintf("pod %s/%s has the address %s, which is outside of spec.podCIDRs of node %s", pod.Namespace, pod.Name, address, pod.Spec.NodeName)
		}
	}
	return ""
}
