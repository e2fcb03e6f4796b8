// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	core "github.com/refract-project/refract/api/core/v1beta1"
)

// Identity describes the credentials of this cluster at a provider. It is in the tenant namespace of the provider. If
// this cluster joins providers by Liqo's protocol, the controller manager writes a kubeconfig with the credentials to a
// Secret.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=id,categories=liqo
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="KubeconfigSecret",type=string,priority=1,JSONPath=`.status.kubeconfigSecretRef.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Identity struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec IdentitySpec `json:"spec,omitempty"`
	// +optional
	Status IdentityStatus `json:"status,omitempty"`
}

// IdentityList is a list of Identities.
//
// +kubebuilder:object:root=true
type IdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Identity `json:"items"`
}

// IdentitySpec describes the credentials.
type IdentitySpec struct {
	// ClusterID is the ID of the provider.
	//
	// +optional
	ClusterID core.ClusterID `json:"clusterID,omitempty"`

	// Type is the purpose of the credentials.
	//
	// +optional
	Type IdentityType `json:"type,omitempty"`

	// AuthParams are the credentials, without the private key.
	//
	// +optional
	AuthParams AuthParams `json:"authParams,omitempty"`

	// Namespace is the namespace on the provider in which the credentials are used.
	//
	// +optional
	Namespace *string `json:"namespace,omitempty"`
}

// IdentityStatus names the Secret with the kubeconfig.
type IdentityStatus struct {
	// KubeconfigSecretRef names the Secret with the kubeconfig, in the same namespace.
	//
	// +optional
	KubeconfigSecretRef *corev1.LocalObjectReference `json:"kubeconfigSecretRef,omitempty"`
}
