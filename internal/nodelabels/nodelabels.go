// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodelabels computes the labels of a virtual node. The virtual kubelet sets these labels on the Node. The
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
	// defaultOS and defaultArchitecture are used if the VirtualNode's labels do not specify the operating system and
	// the architecture. The consumer cannot read the provider's nodes to find out.
	defaultOS           = "linux"
	defaultArchitecture = "amd64"
)

// Of returns the labels of the Node with this name. extra contains the labels from the command line. The labels in the
// spec of the VirtualNode take precedence over extra and over the default labels, but not over the labels that mark the
// Node as a virtual node.
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
