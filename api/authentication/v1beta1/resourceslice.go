// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"crypto/sha256"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
)

// ResourceSlice asks for a share of a provider, and for a user that may use it.
// A consumer creates it in the tenant namespace of its provider; its copy in
// the tenant namespace on the provider gets the answer.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=rslice,categories=liqo
// +kubebuilder:printcolumn:name="Authentication",type=string,JSONPath=`.status.conditions[?(@.type=="Authentication")].status`
// +kubebuilder:printcolumn:name="Resources",type=string,JSONPath=`.status.conditions[?(@.type=="Resources")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ResourceSlice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ResourceSliceSpec `json:"spec,omitempty"`
	// +optional
	Status ResourceSliceStatus `json:"status,omitempty"`
}

// ResourceSliceList is a list of ResourceSlices.
//
// +kubebuilder:object:root=true
type ResourceSliceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ResourceSlice `json:"items"`
}

// ResourceSliceClass names the controller that decides on a ResourceSlice.
type ResourceSliceClass string

// DefaultResourceSliceClass is decided on by this cluster's controllers, and so is a ResourceSlice without a class. The resources of any other class
// are decided by the controller that knows it.
const DefaultResourceSliceClass ResourceSliceClass = "default"

// ResourceSliceSpec is what is asked for.
type ResourceSliceSpec struct {
	// ConsumerClusterID is the cluster that requests it.
	//
	// +optional
	ConsumerClusterID *core.ClusterID `json:"consumerClusterID,omitempty"`

	// ProviderClusterID is the cluster that is requested.
	//
	// +optional
	ProviderClusterID *core.ClusterID `json:"providerClusterID,omitempty"`

	// Resources of the share. Those that are not named are granted as the provider sees fit.
	//
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`

	// Class names the controller that decides.
	//
	// +optional
	Class ResourceSliceClass `json:"class,omitempty"`

	// CSR is the request, in PEM, for the certificate of the user.
	//
	// +optional
	CSR []byte `json:"csr,omitempty"`
}

// ResourceSliceConditionType names what is decided on.
//
// +kubebuilder:validation:Enum=Authentication;Resources
type ResourceSliceConditionType string

// Conditions of a ResourceSlice.
const (
	// AuthenticationCondition: the certificate.
	AuthenticationCondition ResourceSliceConditionType = "Authentication"
	// ResourcesCondition: the share.
	ResourcesCondition ResourceSliceConditionType = "Resources"
)

// ResourceSliceConditionStatus is a decision.
//
// +kubebuilder:validation:Enum=Accepted;Denied
type ResourceSliceConditionStatus string

// The decisions.
const (
	ResourceSliceAccepted ResourceSliceConditionStatus = "Accepted"
	ResourceSliceDenied   ResourceSliceConditionStatus = "Denied"
)

// ResourceSliceCondition is a decision and the reason for it.
type ResourceSliceCondition struct {
	// Type says what was decided on.
	Type ResourceSliceConditionType `json:"type"`

	// Status is the decision.
	Status ResourceSliceConditionStatus `json:"status"`

	// LastTransitionTime is when the status changed last.
	//
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`

	// Reason is one word for the decision.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message explains the decision to a human.
	//
	// +optional
	Message string `json:"message,omitempty"`
}

// ResourceSliceStatus is the answer.
type ResourceSliceStatus struct {
	// Conditions are the decisions.
	//
	// +optional
	Conditions []ResourceSliceCondition `json:"conditions,omitempty"`

	// Resources that are granted.
	//
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`

	// AuthParams open the provider to the user.
	//
	// +optional
	AuthParams *AuthParams `json:"authParams,omitempty"`

	// StorageClasses that the provider offers.
	//
	// +optional
	StorageClasses []offloading.StorageType `json:"storageClasses,omitempty"`

	// IngressClasses that the provider offers.
	//
	// +optional
	IngressClasses []offloading.IngressType `json:"ingressClasses,omitempty"`

	// LoadBalancerClasses that the provider offers.
	//
	// +optional
	LoadBalancerClasses []offloading.LoadBalancerType `json:"loadBalancerClasses,omitempty"`

	// NodeLabels that the virtual node gets.
	//
	// +optional
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`

	// NodeSelector that the offloaded pods get.
	//
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
}

// Condition returns the decision on t, nil when there is none.
func (s *ResourceSliceStatus) Condition(t ResourceSliceConditionType) *ResourceSliceCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// Decision returns the status of the decision on t, "" when there is none.
func (s *ResourceSliceStatus) Decision(t ResourceSliceConditionType) ResourceSliceConditionStatus {
	if condition := s.Condition(t); condition != nil {
		return condition.Status
	}
	return ""
}

// ResourceSliceUser returns the name of the user that a consumer gets for a ResourceSlice: the name of the slice, and the first six
// bytes of the SHA-256 of the cluster id.
func ResourceSliceUser(slice, consumer string) string {
	sum := sha256.Sum256([]byte(consumer))
	return fmt.Sprintf("%s-%x", slice, sum[:6])
}
