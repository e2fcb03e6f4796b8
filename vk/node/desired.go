// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/nodelabels"
)

// Identity contains the properties of a virtual node that are constant while the process runs.
type Identity struct {
	// Name is the name of the Node.
	Name string
	// RemoteClusterID is the ID of the provider.
	RemoteClusterID string
	// Address is the address at which the control plane reaches the kubelet API.
	Address string
	// Port is the port of the kubelet API.
	Port int32
	// KubeletVersion is the kubelet version in the Node: the version of the local API server.
	KubeletVersion string
	// Labels and Annotations are set by flags.
	Labels, Annotations map[string]string
}

// desiredNode returns the Node for a VirtualNode, without conditions.
func (id *Identity) desiredNode(vn *offloadingv1beta1.VirtualNode) *corev1.Node {
	labels := nodelabels.Of(id.Name, id.RemoteClusterID, vn, id.Labels)
	capacity := vn.Spec.ResourceQuota.Hard.DeepCopy()
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        id.Name,
			Labels:      labels,
			Annotations: mergeMaps(id.Annotations, vn.Spec.Annotations),
		},
		Spec: corev1.NodeSpec{Taints: desiredTaints(vn)},
		Status: corev1.NodeStatus{
			Capacity:        capacity,
			Allocatable:     capacity.DeepCopy(),
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: id.Address}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: id.Port}},
			Images:          vn.Spec.Images,
			// The Node declares this feature, because the kubelet API forwards WebSockets.
			DeclaredFeatures: []string{"ExtendWebSocketsToKubelet"},
			NodeInfo: corev1.NodeSystemInfo{
				KubeletVersion:  id.KubeletVersion,
				OperatingSystem: labels[corev1.LabelOSStable],
				Architecture:    labels[corev1.LabelArchStable],
			},
		},
	}
}

// desiredTaints returns the taints of the node. The first one is the taint that all virtual nodes have.
func desiredTaints(vn *offloadingv1beta1.VirtualNode) []corev1.Taint {
	all := []corev1.Taint{{Key: wire.VirtualNodeTaint, Value: wire.VirtualNodeTaintValue, Effect: corev1.TaintEffectNoExecute}}
	for i := range vn.Spec.Taints {
		if !hasTaint(all, &vn.Spec.Taints[i]) {
			all = append(all, vn.Spec.Taints[i])
		}
	}
	return all
}

// hasTaint reports whether the list has a taint with the same key and effect as taint. The API server accepts only
// one such taint.
func hasTaint(list []corev1.Taint, taint *corev1.Taint) bool {
	return slices.ContainsFunc(list, func(t corev1.Taint) bool { return t.MatchTaint(taint) })
}

// mergeMaps merges maps. If a key is in several maps, its value comes from the last of them. The result is never nil.
func mergeMaps(all ...map[string]string) map[string]string {
	joined := map[string]string{}
	for _, m := range all {
		maps.Copy(joined, m)
	}
	return joined
}
