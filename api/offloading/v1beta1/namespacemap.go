// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NamespaceMap maps namespaces of the consumer to remote namespaces on one provider. It is in the tenant namespace of
// both clusters, and its name is the ID of the other cluster. The spec is copied from the consumer to the provider,
// and the status back.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=nm;nsmap,categories=liqo
// +kubebuilder:printcolumn:name="Local",type=string,JSONPath=`.metadata.labels.liqo\.io/replication`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NamespaceMap struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NamespaceMapSpec `json:"spec,omitempty"`
	// +optional
	Status NamespaceMapStatus `json:"status,omitempty"`
}

// NamespaceMapList is a list of NamespaceMaps.
//
// +kubebuilder:object:root=true
type NamespaceMapList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NamespaceMap `json:"items"`
}

// NamespaceMapSpec contains the requests of the consumer.
type NamespaceMapSpec struct {
	// DesiredMapping maps names of local namespaces to the names of their remote namespaces.
	//
	// +optional
	DesiredMapping map[string]string `json:"desiredMapping,omitempty"`
}

// MappingPhase is the state of one remote namespace.
//
// +kubebuilder:validation:Enum=Accepted;CreationLoopBackOff;Terminating
type MappingPhase string

// States of a remote namespace.
const (
	// MappingAccepted means that the remote namespace exists and the consumer may use it.
	MappingAccepted MappingPhase = "Accepted"
	// MappingCreationLoopBackOff means that the remote namespace cannot be created, for example because a namespace
	// of that name has another owner.
	MappingCreationLoopBackOff MappingPhase = "CreationLoopBackOff"
	// MappingTerminating means that the remote namespace is being deleted.
	MappingTerminating MappingPhase = "Terminating"
)

// MaxMappingMessage is the maximum length, in bytes, of a message in the status of a NamespaceMap. Longer messages
// are truncated.
const MaxMappingMessage = 1024

// NamespaceMapStatus is the response of the provider.
type NamespaceMapStatus struct {
	// CurrentMapping maps names of the consumer's namespaces to the states of their remote namespaces.
	//
	// +optional
	CurrentMapping map[string]RemoteNamespaceStatus `json:"currentMapping,omitempty"`
}

// RemoteNamespaceStatus is the state of one remote namespace.
type RemoteNamespaceStatus struct {
	// RemoteNamespace is the name of the remote namespace.
	//
	// +optional
	RemoteNamespace string `json:"remoteNamespace,omitempty"`

	// Phase is the phase of the remote namespace.
	//
	// +optional
	Phase MappingPhase `json:"phase,omitempty"`

	// Message explains why the consumer cannot use the remote namespace, and how to resolve this. It is also shown to
	// users of the consumer.
	//
	// +optional
	Message string `json:"message,omitempty"`
}
