// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Annotations for users on a Service, to change how it is reflected.
const (
	// ForceRemoteNodePortAnnotation ("true") keeps the node ports.
	ForceRemoteNodePortAnnotation = "liqo.io/force-remote-node-port"
	// UseDirectConnectionsAnnotation ("true") sends traffic between two
	// providers straight, not through the consumer.
	UseDirectConnectionsAnnotation = "liqo.io/use-direct-connections"
)

// DirectConnectionsDataAnnotation, on a ShadowEndpointSlice, holds as JSON
// which addresses belong to which cluster.
const DirectConnectionsDataAnnotation = "liqo.io/direct-connections-data"

// Annotations for users on a PersistentVolumeClaim, to change how it is reflected.
const (
	// RemoteStorageClassAnnotation names the claim's class on the provider.
	RemoteStorageClassAnnotation = "liqo.io/remote-storage-class"
	// RemoteAccessModesAnnotation lists its access modes there, separated by commas.
	RemoteAccessModesAnnotation = "liqo.io/remote-access-modes"
)

// Whose status a Service, Ingress or custom resource of the consumer shows. These are ours: virtual kubelets write them, and the
// controller manager takes back what they have left in a namespace that is withdrawn.
const (
	// StatusFromAnnotation is the cluster ID of the owner of the status: a provider, or this cluster if one of its controllers writes it.
	StatusFromAnnotation = "plugins.refract.io/status-from"
	// StatusHashAnnotation is a hash of what was shown.
	StatusHashAnnotation = "plugins.refract.io/status-hash"
)
