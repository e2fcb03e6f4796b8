// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/internal/homeaddress"
)

// podsOfNodes returns cache options for all pods that may have an address of their own.
func podsOfNodes() cache.ByObject {
	return cache.ByObject{Transform: shrinkPod, Field: fields.AndSelectors(
		fields.OneTermNotEqualSelector("spec.nodeName", ""),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)))}
}

// shrinkPod keeps only the fields of a pod that a gateway reads.
func shrinkPod(object any) (any, error) {
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	small := homeaddress.ShrinkPod(pod)
	small.Spec.NodeName = pod.Spec.NodeName
	return small, nil
}

// addPods adds the addresses of pods to their nodes that are not in the pod ranges of the node. Pods in the network of
// their node, and pods of nodes that are not in the list, such as virtual nodes, are left out.
func addPods(nodes []desired.Node, pods []corev1.Pod) {
	byName := make(map[string]*desired.Node, len(nodes))
	for i := range nodes {
		nodes[i].Pods = nil
		byName[nodes[i].Name] = &nodes[i]
	}
	for i := range pods {
		node := byName[pods[i].Spec.NodeName]
		address, ok := homeaddress.OfPod(&pods[i])
		isInRange := func(r netip.Prefix) bool { return r.Contains(address) }
		if node != nil && ok && address != node.IP && !slices.ContainsFunc(node.PodRanges, isInRange) {
			node.Pods = append(node.Pods, address)
		}
	}
	for i := range nodes {
		slices.SortFunc(nodes[i].Pods, netip.Addr.Compare)
		nodes[i].Pods = slices.Compact(nodes[i].Pods)
	}
}
