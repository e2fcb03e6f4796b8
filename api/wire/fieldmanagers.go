// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

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
)

// IsFieldManager reports whether the name is a field manager of Refract. Such a field manager does not count as
// another client.
func IsFieldManager(name string) bool {
	switch name {
	case ReflectionFieldManager, ShadowPodFieldManager, ShadowEndpointSliceFieldManager,
		WebhookCertFieldManager, ForeignClusterFieldManager, HeartbeatFieldManager, NamespaceMapFieldManager, NamespaceOffloadingFieldManager,
		ObjectQuotaFieldManager, PodStatusFieldManager, ReplicatorFieldManager, VirtualNodeFieldManager:
		return true
	}
	return false
}
