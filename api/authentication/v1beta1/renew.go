// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	core "github.com/refract-project/refract/api/core/v1beta1"
)

// Renew requests the renewal of a certificate. A consumer creates it in the
// tenant namespace of its provider; the provider responds in the status of the
// copy in the tenant namespace there.
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
	// ConsumerClusterID is the cluster that requests it.
	//
	// +optional
	ConsumerClusterID core.ClusterID `json:"consumerClusterID,omitempty"`

	// PublicKey of the consumer. Where it has joined with a Tenant, nothing
	// follows from it: the key of the Tenant counts. Elsewhere it is the key of
	// the present certificate, which has signed the request.
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
	// AuthParams with the new certificate.
	//
	// +optional
	AuthParams *AuthParams `json:"authParams,omitempty"`

	// Refusal says why there is no certificate, and what to do. It is empty when
	// there is one, and where the consumer has joined with a Tenant.
	//
	// +optional
	Refusal string `json:"refusal,omitempty"`
}
