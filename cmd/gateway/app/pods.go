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
	small := &corev1.Pod{Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork}}
	small.Namespace, small.Name, small.UID, small.ResourceVersion = pod.Namespace, pod.Name, pod.UID, pod.ResourceVersion
	small.Status.PodIP, small.Status.PodIPs = pod.Status.PodIP, pod.Status.PodIPs
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
		if node == nil || pods[i].Spec.HostNetwork {
			continue
		}
		address := ipv4Of(&pods[i])
		isInRange := func(r netip.Prefix) bool { return r.Contains(address) }
		if address.IsValid() && address != node.IP && !slices.ContainsFunc(node.PodRanges, isInRange) {
			node.Pods = append(node.Pods, address)
		}
	}
	for i := range nodes {
		slices.SortFunc(nodes[i].Pods, netip.Addr.Compare)
		nodes[i].Pods = slices.Compact(nodes[i].Pods)
	}
}

// ipv4Of returns the IPv4 address of a pod. It is invalid if the pod has none.
func ipv4Of(pod *corev1.Pod) netip.Addr {
	for _, text := range append([]corev1.PodIP{{IP: pod.Status.PodIP}}, pod.Status.PodIPs...) {
		if address, err := netip.ParseAddr(text.IP); err == nil && address.Is4() {
			return address
		}
	}
	return netip.Addr{}
}
