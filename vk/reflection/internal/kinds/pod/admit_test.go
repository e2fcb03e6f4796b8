// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/refract-project/refract/vk/reflection/internal/queue"
)

// TestUntoleratedTaintsReject checks that a taint with the effect NoExecute rejects new pods that do not tolerate it,
// as a kubelet does. Taints with other effects do not, because they concern only the scheduler. (In a cluster,
// Kubernetes also deletes running pods that do not tolerate NoExecute.)
func TestUntoleratedTaintsReject(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}, {Key: "b", Effect: corev1.TaintEffectNoExecute}}}}
	pod := &corev1.Pod{}
	assert.Equal(t, "TaintToleration", reject(pod, node).reason)
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "b", Operator: corev1.TolerationOpExists}}
	assert.Nil(t, reject(pod, node))
	assert.Nil(t, reject(&corev1.Pod{}, nil))
}

// TestHostPortsCollide checks that equal host ports collide if they are on the same address or if one of them is on
// any address, and that a deleted pod frees its ports.
func TestHostPortsCollide(t *testing.T) {
	t.Parallel()
	pod := func(ip string, protocol corev1.Protocol) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 80, HostIP: ip, Protocol: protocol}}}}}}
	}
	key := func(name string) queue.Key { return queue.Key{Namespace: "shop", Name: name} }
	node, pods := &corev1.Node{}, &admitted{}
	assert.Nil(t, pods.take(key("a"), pod("10.0.0.1", corev1.ProtocolTCP), node))
	assert.Nil(t, pods.take(key("b"), pod("10.0.0.2", corev1.ProtocolTCP), node))
	assert.Nil(t, pods.take(key("c"), pod("", corev1.ProtocolUDP), node))
	for _, ip := range []string{"10.0.0.1", "0.0.0.0", ""} {
		assert.Equal(t, "NodePorts", pods.take(key("d"), pod(ip, corev1.ProtocolTCP), node).reason, ip)
	}
	pods.leave(key("a"))
	assert.Nil(t, pods.take(key("d"), pod("10.0.0.1", corev1.ProtocolTCP), node))
}
