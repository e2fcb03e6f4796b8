// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NamespaceMap maps namespaces of the consumer to remote namespaces on one
// provider. Its name is the id of the remote cluster; it is in the tenant
// namespace of both clusters. The spec is copied from consumer to provider,
// the status back.
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

// NamespaceMapSpec has the requests of the consumer.
type NamespaceMapSpec struct {
	// DesiredMapping has the name of the remote namespace by the name of the local
	// namespace.
	//
	// +optional
	DesiredMapping map[string]string `json:"desiredMapping,omitempty"`
}

// MappingPhase is the state of one remote namespace.
//
// +kubebuilder:validation:Enum=Accepted;CreationLoopBackOff;Terminating
type MappingPhase string

// The states of a remote namespace.
const (
	// MappingAccepted: the remote namespace exists and the consumer may use it.
	MappingAccepted MappingPhase = "Accepted"
	// MappingCreationLoopBackOff: it cannot be created, for example because a
	// namespace of that name has another owner.
	MappingCreationLoopBackOff MappingPhase = "CreationLoopBackOff"
	// MappingTerminating: it is being deleted.
	MappingTerminating MappingPhase = "Terminating"
)

// MaxMappingMessage is the most bytes of a message in the status of a NamespaceMap; longer ones are shortened.
const MaxMappingMessage = 1024

// NamespaceMapStatus is the response of the provider.
type NamespaceMapStatus struct {
	// CurrentMapping has the state of the remote namespace by the name of the consumer's
	// namespace.
	//
	// +optional
	CurrentMapping map[string]RemoteNamespaceStatus `json:"currentMapping,omitempty"`
}

// RemoteNamespaceStatus is one remote namespace.
type RemoteNamespaceStatus struct {
	// RemoteNamespace is the name of the remote namespace.
	//
	// +optional
	RemoteNamespace string `json:"remoteNamespace,omitempty"`

	// Phase of the remote namespace.
	//
	// +optional
	Phase MappingPhase `json:"phase,omitempty"`

	// Message is the reason why the consumer cannot use the remote namespace, with
	// the remedy. Users of the consumer read it as well.
	//
	// +optional
	Message string `json:"message,omitempty"`
}
