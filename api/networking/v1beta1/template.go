// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// WgGatewayServerTemplate is the template of gateways that wait for the other end to connect.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=wggst;wgst,categories=liqo
type WgGatewayServerTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec GatewayTemplateSpec `json:"spec,omitempty"`
}

// WgGatewayServerTemplateList is a list of WgGatewayServerTemplates.
//
// +kubebuilder:object:root=true
type WgGatewayServerTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WgGatewayServerTemplate `json:"items"`
}

// WgGatewayClientTemplate is the template of gateways that start the connection.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=wggct;wgct,categories=liqo
type WgGatewayClientTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec GatewayTemplateSpec `json:"spec,omitempty"`
}

// WgGatewayClientTemplateList is a list of WgGatewayClientTemplates.
//
// +kubebuilder:object:root=true
type WgGatewayClientTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WgGatewayClientTemplate `json:"items"`
}

// GatewayTemplateSpec is the object that runs a gateway.
type GatewayTemplateSpec struct {
	// ObjectKind is the kind of the object.
	//
	// +optional
	ObjectKind ObjectKind `json:"objectKind,omitempty"`

	// Template is the object. It is stored without a schema.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Template runtime.RawExtension `json:"template,omitempty"`
}

// ObjectKind names a kind.
type ObjectKind struct {
	// APIVersion is the group and version.
	//
	// +optional
	APIVersion string `json:"apiVersion,omitempty"`

	// Kind is the name of the kind.
	//
	// +optional
	Kind string `json:"kind,omitempty"`
}
