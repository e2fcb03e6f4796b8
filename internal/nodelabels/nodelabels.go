// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodelabels computes the labels of a virtual node. The virtual kubelet sets them on the Node; the
// controllers use them to evaluate selectors before the Node is registered.
package nodelabels

import (
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

const (
	// defaultOS and defaultArchitecture apply if the labels of the VirtualNode specify none, because the provider's
	// nodes cannot be read.
	defaultOS           = "linux"
	defaultArchitecture = "amd64"
)

// Of returns the labels of the Node with this name. The VirtualNode may override all labels except the labels that mark
// it as a virtual node. It also overrides extra, the labels from the command line.
func Of(name, remoteClusterID string, vn *offloadingv1beta1.VirtualNode, extra map[string]string) map[string]string {
	labels := map[string]string{
		corev1.LabelHostname:                       name,
		corev1.LabelOSStable:                       defaultOS,
		corev1.LabelArchStable:                     defaultArchitecture,
		"kubernetes.io/role":                       "agent",
		wire.AutoscalerTypeLabel:                   wire.AutoscalerType,
		wire.ExcludeFromExternalLoadBalancersLabel: "true",
		wire.LegacyExcludeBalancerLabel:            "true",
		wire.StorageAvailableLabel:                 strconv.FormatBool(len(vn.Spec.StorageClasses) > 0),
	}
	maps.Copy(labels, extra)
	maps.Copy(labels, vn.Spec.Labels)
	labels[wire.TypeLabel], labels[wire.RemoteClusterIDLabel] = wire.VirtualNodeType, remoteClusterID
	return labels
}
