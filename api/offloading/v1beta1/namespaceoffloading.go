// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespaceOffloadingName is the only valid name of a NamespaceOffloading, because each namespace can have only one.
const NamespaceOffloadingName = "offloading"

// NamespaceOffloading offloads its namespace to virtual nodes. Each namespace can have one, which must be named
// "offloading".
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=nso;nsof;nsoff;nsoffloading,categories=liqo
// +kubebuilder:printcolumn:name="NamespaceMappingStrategy",type=string,JSONPath=`.spec.namespaceMappingStrategy`
// +kubebuilder:printcolumn:name="PodOffloadingStrategy",type=string,JSONPath=`.spec.podOffloadingStrategy`
// +kubebuilder:printcolumn:name="OffloadingPhase",type=string,JSONPath=`.status.offloadingPhase`
// +kubebuilder:printcolumn:name="RemoteNamespaceName",type=string,priority=10,JSONPath=`.status.remoteNamespaceName`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'offloading'",message="a NamespaceOffloading must be named offloading: there is one per namespace"
type NamespaceOffloading struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec selects the virtual nodes to which the namespace is offloaded.
	Spec NamespaceOffloadingSpec `json:"spec"`
	// +optional
	Status NamespaceOffloadingStatus `json:"status,omitempty"`
}

// NamespaceOffloadingList is a list of NamespaceOffloadings.
//
// +kubebuilder:object:root=true
type NamespaceOffloadingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NamespaceOffloading `json:"items"`
}

// NamespaceMappingStrategyType is the naming strategy of remote namespaces.
//
// +kubebuilder:validation:Enum=EnforceSameName;DefaultName;SelectedName
type NamespaceMappingStrategyType string

// Naming strategies of remote namespaces.
const (
	// EnforceSameNameMappingStrategyType means that a remote namespace has the name of the local namespace. Its
	// creation fails if the provider already has a namespace of that name.
	EnforceSameNameMappingStrategyType NamespaceMappingStrategyType = "EnforceSameName"
	// DefaultNameMappingStrategyType means that the name consists of the name of the local namespace, a dash, and the
	// local cluster ID.
	DefaultNameMappingStrategyType NamespaceMappingStrategyType = "DefaultName"
	// SelectedNameMappingStrategyType means that the name is the value of remoteNamespaceName.
	SelectedNameMappingStrategyType NamespaceMappingStrategyType = "SelectedName"
)

// PodOffloadingStrategyType defines where the pods of the namespace may run.
//
// +kubebuilder:validation:Enum=Local;Remote;LocalAndRemote
type PodOffloadingStrategyType string

// Nodes on which pods may run.
const (
	// LocalPodOffloadingStrategyType means that pods run only in this cluster. Services are reflected nevertheless.
	LocalPodOffloadingStrategyType PodOffloadingStrategyType = "Local"
	// RemotePodOffloadingStrategyType means that pods run only on virtual nodes.
	RemotePodOffloadingStrategyType PodOffloadingStrategyType = "Remote"
	// LocalAndRemotePodOffloadingStrategyType means that pods run on any node.
	LocalAndRemotePodOffloadingStrategyType PodOffloadingStrategyType = "LocalAndRemote"
)

// NamespaceOffloadingSpec selects the virtual nodes to which the namespace is offloaded.
//
// The API server itself enforces the rules below, so that they also apply when no webhook is running. (Liqo enforces
// them with a webhook.)
//
// +kubebuilder:validation:XValidation:rule="self.namespaceMappingStrategy == oldSelf.namespaceMappingStrategy",message="namespaceMappingStrategy is immutable: delete the NamespaceOffloading and create another"
// +kubebuilder:validation:XValidation:rule="self.remoteNamespaceName == oldSelf.remoteNamespaceName",message="remoteNamespaceName is immutable: delete the NamespaceOffloading and create another"
// +kubebuilder:validation:XValidation:rule="self.namespaceMappingStrategy != 'SelectedName' || size(self.remoteNamespaceName) > 0",message="remoteNamespaceName is required with the mapping strategy SelectedName"
type NamespaceOffloadingSpec struct {
	// NamespaceMappingStrategy is the naming strategy of the remote namespaces. It
	// is immutable.
	//
	// +kubebuilder:default=DefaultName
	// +optional
	NamespaceMappingStrategy NamespaceMappingStrategyType `json:"namespaceMappingStrategy,omitempty"`

	// RemoteNamespaceName is the name of the remote namespaces if the mapping strategy is SelectedName. With other
	// strategies it is ignored. It is immutable.
	//
	// +kubebuilder:default=""
	// +optional
	RemoteNamespaceName string `json:"remoteNamespaceName,omitempty"`

	// PodOffloadingStrategy defines where the pods of the namespace may run.
	//
	// +kubebuilder:default=LocalAndRemote
	// +optional
	PodOffloadingStrategy PodOffloadingStrategyType `json:"podOffloadingStrategy,omitempty"`

	// ClusterSelector selects virtual nodes by their labels. An empty selector selects all virtual nodes.
	//
	// +optional
	ClusterSelector corev1.NodeSelector `json:"clusterSelector,omitzero"`
}

// OffloadingPhaseType summarizes the state of all remote namespaces.
type OffloadingPhaseType string

// Phases of a NamespaceOffloading.
const (
	ReadyOffloadingPhaseType             OffloadingPhaseType = "Ready"
	NoClusterSelectedOffloadingPhaseType OffloadingPhaseType = "NoClusterSelected"
	// InvalidClusterSelectorOffloadingPhaseType means that the clusterSelector cannot be evaluated, so nothing was
	// changed. Liqo does not have this phase.
	InvalidClusterSelectorOffloadingPhaseType OffloadingPhaseType = "InvalidClusterSelector"
	InProgressOffloadingPhaseType             OffloadingPhaseType = "InProgress"
	SomeFailedOffloadingPhaseType             OffloadingPhaseType = "SomeFailed"
	AllFailedOffloadingPhaseType              OffloadingPhaseType = "AllFailed"
	TerminatingOffloadingPhaseType            OffloadingPhaseType = "Terminating"
)

// NamespaceOffloadingStatus is the state of the offloading.
type NamespaceOffloadingStatus struct {
	// RemoteNamespaceName is the name of the remote namespaces.
	//
	// +optional
	RemoteNamespaceName string `json:"remoteNamespaceName,omitempty"`

	// OffloadingPhase summarizes the state of all remote namespaces.
	//
	// +optional
	OffloadingPhase OffloadingPhaseType `json:"offloadingPhase,omitempty"`

	// RemoteNamespacesConditions contains the conditions of each remote namespace. The keys are the names of the
	// NamespaceMaps, which are the IDs of the remote clusters.
	//
	// +optional
	RemoteNamespacesConditions map[string]RemoteNamespaceConditions `json:"remoteNamespacesConditions,omitempty"`

	// ObservedGeneration is the generation that this status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// RemoteNamespaceConditions are the conditions of one remote namespace.
type RemoteNamespaceConditions []RemoteNamespaceCondition

// RemoteNamespaceConditionType names an aspect of a remote namespace.
type RemoteNamespaceConditionType string

// Aspects of a remote namespace.
const (
	// NamespaceOffloadingRequired reports whether the cluster is selected.
	NamespaceOffloadingRequired RemoteNamespaceConditionType = "OffloadingRequired"
	// NamespaceReady reports whether the remote namespace exists.
	NamespaceReady RemoteNamespaceConditionType = "Ready"
)

// RemoteNamespaceCondition is the state of one aspect of a remote namespace.
type RemoteNamespaceCondition struct {
	// Type is the aspect that the condition describes.
	Type RemoteNamespaceConditionType `json:"type"`

	// Status is the value of the condition: True, False or Unknown.
	Status corev1.ConditionStatus `json:"status"`

	// LastTransitionTime is the time of the last change of the status.
	//
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`

	// Reason is a CamelCase word for the last change.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message is a human-readable description of the last change.
	//
	// +optional
	Message string `json:"message,omitempty"`
}
