// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
)

// IP requests an address that peers use in place of a local address that they cannot reach.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo
// +kubebuilder:printcolumn:name="Local IP",type=string,JSONPath=`.spec.ip`
// +kubebuilder:printcolumn:name="Remapped IP",type=string,JSONPath=`.status.ip`
// +kubebuilder:printcolumn:name="Remapped IP CIDR",type=string,JSONPath=`.status.cidr`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Granted")].message`
type IP struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IPSpec `json:"spec"`
	// +optional
	Status IPStatus `json:"status,omitempty"`
}

// IPList is a list of IPs.
//
// +kubebuilder:object:root=true
type IPList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IP `json:"items"`
}

// IPSpec is the request.
type IPSpec struct {
	// IP is the address in this cluster. It is immutable.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="ip is immutable: delete the IP and create another"
	IP networking.IP `json:"ip"`

	// NetworkRef names the Network whose range contains the granted address. The default is the Network with the label
	// ipam.liqo.io/network-type=external-cidr.
	//
	// +optional
	NetworkRef *corev1.ObjectReference `json:"networkRef,omitempty"`

	// ServiceTemplate is the template of a Service that has the name of the IP and routes to the address.
	//
	// +optional
	ServiceTemplate *ServiceTemplate `json:"serviceTemplate,omitempty"`

	// Masquerade replaces the source address of packets to the address with an address of the node, for hosts without a route back.
	//
	// +optional
	Masquerade *bool `json:"masquerade,omitempty"`
}

// ServiceTemplate is the template of a Service. It is stored without a schema, so that fields that this version does not know survive; the
// API server validates the Service when it is created.
type ServiceTemplate struct {
	// Metadata are the labels and annotations of the Service.
	//
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Metadata metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the spec of the Service.
	//
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Spec corev1.ServiceSpec `json:"spec,omitempty"`
}

// IPStatus contains the granted address.
type IPStatus struct {
	// IP is the granted address.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a granted address does not change"
	// +optional
	IP networking.IP `json:"ip,omitempty"`

	// CIDR is the range of the Network that has the address.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the range of a granted address does not change"
	// +optional
	CIDR networking.CIDR `json:"cidr,omitempty"`

	// Conditions are the conditions of the request while it is not granted. Liqo's CRD does not store them.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
