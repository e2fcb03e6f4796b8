// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespaceOffloadingName is the only name that a NamespaceOffloading may
// have: there is one per namespace.
const NamespaceOffloadingName = "offloading"

// NamespaceOffloading offloads its namespace to virtual nodes. There is one
// per namespace, named "offloading".
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

	// Spec selects where the namespace is offloaded to.
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

// The naming strategies of remote namespaces.
const (
	// EnforceSameNameMappingStrategyType: the name of the local namespace. The creation
	// fails if the provider already has a namespace of that name.
	EnforceSameNameMappingStrategyType NamespaceMappingStrategyType = "EnforceSameName"
	// DefaultNameMappingStrategyType: the local name, a dash, the local cluster id.
	DefaultNameMappingStrategyType NamespaceMappingStrategyType = "DefaultName"
	// SelectedNameMappingStrategyType: the name in remoteNamespaceName.
	SelectedNameMappingStrategyType NamespaceMappingStrategyType = "SelectedName"
)

// PodOffloadingStrategyType defines where the pods of the namespace may run.
//
// +kubebuilder:validation:Enum=Local;Remote;LocalAndRemote
type PodOffloadingStrategyType string

// The places where pods may run.
const (
	// LocalPodOffloadingStrategyType: on this cluster only; Services are still reflected.
	LocalPodOffloadingStrategyType PodOffloadingStrategyType = "Local"
	// RemotePodOffloadingStrategyType: on virtual nodes only.
	RemotePodOffloadingStrategyType PodOffloadingStrategyType = "Remote"
	// LocalAndRemotePodOffloadingStrategyType: on any node.
	LocalAndRemotePodOffloadingStrategyType PodOffloadingStrategyType = "LocalAndRemote"
)

// NamespaceOffloadingSpec selects where the namespace is offloaded to.
//
// Liqo enforces the rules below in a webhook; here the API server does it, so
// that they hold also when no webhook is running.
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

	// RemoteNamespaceName is the name of the remote namespaces with the mapping
	// strategy SelectedName; the others ignore it. It is immutable.
	//
	// +kubebuilder:default=""
	// +optional
	RemoteNamespaceName string `json:"remoteNamespaceName,omitempty"`

	// PodOffloadingStrategy defines where the pods of the namespace may run.
	//
	// +kubebuilder:default=LocalAndRemote
	// +optional
	PodOffloadingStrategy PodOffloadingStrategyType `json:"podOffloadingStrategy,omitempty"`

	// ClusterSelector selects virtual nodes by their labels; empty selects all.
	//
	// +optional
	ClusterSelector corev1.NodeSelector `json:"clusterSelector,omitzero"`
}

// OffloadingPhaseType summarizes the state of all remote namespaces.
type OffloadingPhaseType string

// The phases of a NamespaceOffloading.
const (
	ReadyOffloadingPhaseType             OffloadingPhaseType = "Ready"
	NoClusterSelectedOffloadingPhaseType OffloadingPhaseType = "NoClusterSelected"
	// InvalidClusterSelectorOffloadingPhaseType: the clusterSelector cannot be evaluated, so nothing was changed. Not in Liqo.
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

	// RemoteNamespacesConditions has the conditions of each remote namespace by
	// the name of its NamespaceMap, which is the id of the remote cluster.
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

// The aspects of a remote namespace.
const (
	// NamespaceOffloadingRequired: whether the cluster is selected.
	NamespaceOffloadingRequired RemoteNamespaceConditionType = "OffloadingRequired"
	// NamespaceReady: whether the remote namespace exists.
	NamespaceReady RemoteNamespaceConditionType = "Ready"
)

// RemoteNamespaceCondition is the state of one aspect of a remote namespace.
type RemoteNamespaceCondition struct {
	// Type of the condition.
	Type RemoteNamespaceConditionType `json:"type"`

	// Status of the condition: True, False or Unknown.
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
