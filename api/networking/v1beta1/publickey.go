// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PublicKey contains the public key of the peer's gateway. The private key never leaves the peer.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=publickeies,shortName=pk;pkies;pkey,categories=liqo
type PublicKey struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec PublicKeySpec `json:"spec,omitempty"`
}

// PublicKeyList is a list of PublicKeys.
//
// +kubebuilder:object:root=true
type PublicKeyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PublicKey `json:"items"`
}

// PublicKeySpec is the key.
type PublicKeySpec struct {
	// PublicKey contains the 32 bytes of the key (Curve25519).
	//
	// +optional
	PublicKey []byte `json:"publicKey,omitempty"`
}
