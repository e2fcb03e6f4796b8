// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ShadowEndpointSlice contains endpoints of the consumer for this provider. An EndpointSlice with the same name and
// namespace is created from it. The endpoints are ready only while their cluster is reachable.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=shes;sheps;seps,categories=liqo
type ShadowEndpointSlice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ShadowEndpointSliceSpec `json:"spec,omitempty"`
}

// ShadowEndpointSliceList is a list of ShadowEndpointSlices.
//
// +kubebuilder:object:root=true
type ShadowEndpointSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ShadowEndpointSlice `json:"items"`
}

// ShadowEndpointSliceSpec is the desired EndpointSlice.
type ShadowEndpointSliceSpec struct {
	// Template is the content of the EndpointSlice.
	//
	// +optional
	Template EndpointSliceTemplate `json:"template,omitempty"`
}

// EndpointSliceTemplate is an EndpointSlice without its metadata. It is stored without a schema, so that unknown
// fields are preserved. The API server validates the EndpointSlice when it is created.
//
// +kubebuilder:pruning:PreserveUnknownFields
type EndpointSliceTemplate struct {
	// AddressType is the type of all endpoint addresses: IPv4, IPv6 or FQDN.
	//
	// +kubebuilder:validation:Enum=IPv4;IPv6;FQDN
	// +optional
	AddressType discoveryv1.AddressType `json:"addressType,omitempty"`

	// Endpoints are the endpoints of the slice.
	//
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Endpoints []discoveryv1.Endpoint `json:"endpoints,omitempty"`

	// Ports are the ports of all endpoints.
	//
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Ports []discoveryv1.EndpointPort `json:"ports,omitempty"`
}
