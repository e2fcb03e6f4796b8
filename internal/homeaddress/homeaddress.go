// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package homeaddress reads which cluster IP a Service has in the cluster of its consumer, and which pods use it. The agents on nodes
// and the resolvers of DNS names must agree on both.
package homeaddress

import (
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/api/wire"
)

// Of returns the IPv4 cluster IP that a Service has in the cluster of its consumer. A Service has at most one. The copy must
// have a cluster IP, too: the annotation remains on an ExternalName Service of a user who has set it. Addresses that no cluster
// gives to a Service are ignored, because the consumer writes them.
func Of(service *corev1.Service) (netip.Addr, bool) {
	if service.Spec.Type == corev1.ServiceTypeExternalName || service.Spec.ClusterIP == corev1.ClusterIPNone {
		return netip.Addr{}, false
	}
	for text := range strings.SplitSeq(service.Annotations[wire.HomeClusterIPsAnnotation], ",") {
		address, err := netip.ParseAddr(text)
		if err == nil && address.Is4() && address.IsGlobalUnicast() {
			return address, true
		}
	}
	return netip.Addr{}, false
}

// OfPod returns the IPv4 address of a pod. A pod that has ended has none, because another pod may have got its address, and
// neither has one that uses the network of its node.
func OfPod(pod *corev1.Pod) (netip.Addr, bool) {
	if pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return netip.Addr{}, false
	}
	for _, ip := range pod.Status.PodIPs {
		if address, err := netip.ParseAddr(ip.IP); err == nil && address.Is4() {
			return address, true
		}
	}
	return netip.Addr{}, false
}

// ShrinkPod returns a copy of a pod for a cache, with the fields that OfPod reads.
func ShrinkPod(pod *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: shrinkMeta(pod.ObjectMeta), Spec: corev1.PodSpec{HostNetwork: pod.Spec.HostNetwork},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, PodIPs: pod.Status.PodIPs}}
}

// ShrinkService returns a copy of a Service for a cache. Without HomeClusterIPsAnnotation, the copy has no spec.
func ShrinkService(service *corev1.Service) *corev1.Service {
	small := &corev1.Service{ObjectMeta: shrinkMeta(service.ObjectMeta)}
	small.CreationTimestamp = service.CreationTimestamp
	home, ok := service.Annotations[wire.HomeClusterIPsAnnotation]
	if !ok {
		return small
	}
	small.Annotations = map[string]string{wire.HomeClusterIPsAnnotation: home}
	s := service.Spec
	small.Spec = corev1.ServiceSpec{Type: s.Type, ClusterIP: s.ClusterIP, ClusterIPs: s.ClusterIPs, Ports: s.Ports,
		SessionAffinity: s.SessionAffinity, InternalTrafficPolicy: s.InternalTrafficPolicy}
	return small
}

func shrinkMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion}
}
