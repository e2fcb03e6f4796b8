// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import "strings"

// Field managers of the controllers that Liqo does not have.
const (
	WebhookCertFieldManager         = "webhookcert-controller"
	ForeignClusterFieldManager      = "foreigncluster-controller"
	HeartbeatFieldManager           = "refract-heartbeat"
	NamespaceMapFieldManager        = "namespacemap-controller"
	NamespaceOffloadingFieldManager = "namespaceoffloading-controller"
	ObjectQuotaFieldManager         = "objectquota-controller"
	PodStatusFieldManager           = "podstatus-controller"
	ReplicatorFieldManager          = "crd-replicator"
	VirtualNodeFieldManager         = "virtualnode-controller"
	NegotiationFieldManager         = "negotiation-controller"
	GatewayFieldManager             = "gateway-controller"
)

// Names of the processes. The user agent of each process begins with its name, and the API server uses the name as the
// field manager of a write that does not set a field manager.
const (
	VirtualKubeletProcess    = "refract-virtual-kubelet"
	ControllerManagerProcess = "refract-controller-manager"
)

// NodeFieldManagerPrefix is the beginning of the field managers of single virtual nodes.
const NodeFieldManagerPrefix = "virtual-kubelet-"

// IsFieldManager reports whether the name is a field manager of Refract. Such a field manager does not count as
// another client. Refractctl counts as another client, because it acts for a user.
func IsFieldManager(name string) bool {
	switch name {
	case ReflectionFieldManager, ShadowPodFieldManager, ShadowEndpointSliceFieldManager,
		WebhookCertFieldManager, ForeignClusterFieldManager, HeartbeatFieldManager, NamespaceMapFieldManager, NamespaceOffloadingFieldManager,
		ObjectQuotaFieldManager, PodStatusFieldManager, ReplicatorFieldManager, VirtualNodeFieldManager, NegotiationFieldManager, GatewayFieldManager,
		VirtualKubeletProcess, ControllerManagerProcess:
		return true
	}
	return strings.HasPrefix(name, NodeFieldManagerPrefix)
}
