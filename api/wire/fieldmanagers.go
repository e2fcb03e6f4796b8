// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Field managers of the controllers, besides those that Liqo has, too.
const (
	WebhookCertFieldManager         = "webhookcert-controller"
	ForeignClusterFieldManager      = "foreigncluster-controller"
	HeartbeatFieldManager           = "refract-heartbeat"
	NamespaceMapFieldManager        = "namespacemap-controller"
	NamespaceOffloadingFieldManager = "namespaceoffloading-controller"
	PodStatusFieldManager           = "podstatus-controller"
	ReplicatorFieldManager          = "crd-replicator"
	VirtualNodeFieldManager         = "virtualnode-controller"
)

// IsFieldManager reports whether the name is a field manager of Refract. What it wrote is not evidence of another client.
func IsFieldManager(name string) bool {
	switch name {
	case ReflectionFieldManager, ShadowPodFieldManager, ShadowEndpointSliceFieldManager,
		WebhookCertFieldManager, ForeignClusterFieldManager, HeartbeatFieldManager, NamespaceMapFieldManager, NamespaceOffloadingFieldManager,
		PodStatusFieldManager, ReplicatorFieldManager, VirtualNodeFieldManager:
		return true
	}
	return false
}
