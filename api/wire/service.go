// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Annotations with which users determine how a Service is reflected.
const (
	// ForceRemoteNodePortAnnotation ("true") means that the copy has the same node ports.
	ForceRemoteNodePortAnnotation = "liqo.io/force-remote-node-port"
	// UseDirectConnectionsAnnotation ("true") sends traffic between two providers directly, not through the consumer.
	UseDirectConnectionsAnnotation = "liqo.io/use-direct-connections"
)

// DirectConnectionsDataAnnotation on a ShadowEndpointSlice lists, as JSON, the addresses of each third cluster.
const DirectConnectionsDataAnnotation = "liqo.io/direct-connections-data"

// Annotations with which users determine how a PersistentVolumeClaim is reflected.
const (
	// RemoteStorageClassAnnotation is the name of the claim's storage class on the provider.
	RemoteStorageClassAnnotation = "liqo.io/remote-storage-class"
	// RemoteAccessModesAnnotation lists the access modes of the claim on the provider, separated by commas.
	RemoteAccessModesAnnotation = "liqo.io/remote-access-modes"
)

// Annotations about the owner of the status of a Service, Ingress or custom resource of the consumer. Virtual
// kubelets write them. The controller manager removes them from namespaces that are no longer offloaded.
const (
	// StatusFromAnnotation is the cluster ID of the owner of the status: a provider, or this cluster if one of its controllers writes it.
	StatusFromAnnotation = "plugins.refract.io/status-from"
	// StatusHashAnnotation is a hash of the reflected status.
	StatusHashAnnotation = "plugins.refract.io/status-hash"
)
