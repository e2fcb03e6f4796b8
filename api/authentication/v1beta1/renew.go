// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	core "github.com/refract-project/refract/api/core/v1beta1"
)

// Renew requests the renewal of a certificate. A consumer creates it in the tenant namespace of the provider. It is
// copied to the tenant namespace on the provider, which responds in the status of the copy.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=liqo
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Renew struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec RenewSpec `json:"spec,omitempty"`
	// +optional
	Status RenewStatus `json:"status,omitempty"`
}

// RenewList is a list of Renews.
//
// +kubebuilder:object:root=true
type RenewList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Renew `json:"items"`
}

// RenewSpec is the request.
type RenewSpec struct {
	// ConsumerClusterID is the ID of the cluster that requests the certificate.
	//
	// +optional
	ConsumerClusterID core.ClusterID `json:"consumerClusterID,omitempty"`

	// PublicKey is the public key of the consumer. If the consumer has joined with a Tenant, the field has no effect,
	// because the key of the Tenant counts. Otherwise it is the key of the current certificate, which has signed the
	// request.
	//
	// +optional
	PublicKey []byte `json:"publicKey,omitempty"`

	// CSR is the request, in PEM.
	//
	// +optional
	CSR []byte `json:"csr,omitempty"`

	// IdentityType is the purpose of the certificate.
	//
	// +optional
	IdentityType IdentityType `json:"identityType,omitempty"`

	// ResourceSliceRef names the ResourceSlice of a certificate of type ResourceSlice.
	//
	// +optional
	ResourceSliceRef *corev1.LocalObjectReference `json:"resourceSliceRef,omitempty"`
}

// RenewStatus is the response.
type RenewStatus struct {
	// AuthParams are the credentials with the new certificate.
	//
	// +optional
	AuthParams *AuthParams `json:"authParams,omitempty"`

	// Refusal explains why no certificate was issued, and how to resolve this. It is empty if a certificate was
	// issued, or if the consumer has joined with a Tenant.
	//
	// +optional
	Refusal string `json:"refusal,omitempty"`
}
