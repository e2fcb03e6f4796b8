// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Quota limits the pods that one user of a consumer may run on this provider. It is in the tenant namespace of the
// consumer, and its name is the name of the user.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=qt,categories=liqo
// +kubebuilder:printcolumn:name="Enforcement",type=string,JSONPath=`.spec.limitsEnforcement`
// +kubebuilder:printcolumn:name="Cordoned",type=boolean,JSONPath=`.spec.cordoned`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="User",type=string,priority=1,JSONPath=`.spec.user`
type Quota struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec QuotaSpec `json:"spec,omitempty"`
}

// QuotaList is a list of Quotas.
//
// +kubebuilder:object:root=true
type QuotaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Quota `json:"items"`
}

// LimitsEnforcement defines which requests and limits pods must set.
//
// +kubebuilder:validation:Enum=Hard;Soft;None
type LimitsEnforcement string

// Levels of enforcement.
const (
	// HardLimitsEnforcement means that pods must set requests, which must equal the limits.
	HardLimitsEnforcement LimitsEnforcement = "Hard"
	// SoftLimitsEnforcement means that pods must set requests.
	SoftLimitsEnforcement LimitsEnforcement = "Soft"
	// NoLimitsEnforcement means that requests are optional. They are counted if they are set.
	NoLimitsEnforcement LimitsEnforcement = "None"
)

// QuotaSpec is the limit for the pods of one user.
type QuotaSpec struct {
	// User is the name with which the consumer authenticates.
	//
	// +kubebuilder:validation:MinLength=1
	User string `json:"user"`

	// LimitsEnforcement defines which requests and limits pods must set.
	//
	// +optional
	LimitsEnforcement LimitsEnforcement `json:"limitsEnforcement,omitempty"`

	// Resources are the resources that the user's pods may request in total.
	Resources corev1.ResourceList `json:"resources"`

	// Cordoned means that new pods are rejected.
	//
	// +optional
	Cordoned *bool `json:"cordoned,omitempty"`
}
