// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
)

// Network requests a range of addresses in this cluster. The range belongs to the cluster itself, or replaces a range of a peer.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=net,categories=liqo
// +kubebuilder:printcolumn:name="Desired CIDR",type=string,JSONPath=`.spec.cidr`
// +kubebuilder:printcolumn:name="Remapped CIDR",type=string,JSONPath=`.status.cidr`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Granted")].message`
type Network struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec NetworkSpec `json:"spec"`
	// +optional
	Status NetworkStatus `json:"status,omitempty"`
}

// NetworkList is a list of Networks.
//
// +kubebuilder:object:root=true
type NetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Network `json:"items"`
}

// NetworkSpec is the request.
type NetworkSpec struct {
	// CIDR is the range that is granted if it is free. Otherwise another range of the same size is granted, unless the Network has the
	// label ipam.liqo.io/network-not-remapped=true. It is immutable.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cidr is immutable: delete the Network and create another"
	CIDR networking.CIDR `json:"cidr"`

	// PreAllocated is the number of addresses at the beginning of the range that no IP gets. It is immutable.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="preAllocated is immutable: delete the Network and create another"
	// +optional
	PreAllocated uint32 `json:"preAllocated,omitempty"`
}

// GrantedCondition is the type of the condition that reports whether the request of a Network or an IP has been
// granted. If it has not, the message contains the reason.
const GrantedCondition = "Granted"

// NetworkStatus contains the granted range.
type NetworkStatus struct {
	// CIDR is the granted range.
	//
	// +optional
	CIDR networking.CIDR `json:"cidr,omitempty"`

	// Conditions are the conditions of the request while it is not granted. Liqo's CRD does not store them.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
