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

// ResourceSlice requests resources of a provider, and a user that may use them. A consumer creates it in the tenant
// namespace of the provider. It is copied to the tenant namespace on the provider, which responds in the status of
// the copy.
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

// DefaultResourceSliceClass is the default class. Refract's controllers decide on its ResourceSlices. ResourceSlices
// of any other class are left to other controllers.
const DefaultResourceSliceClass ResourceSliceClass = "default"

// ResourceSliceSpec is the request.
type ResourceSliceSpec struct {
	// ConsumerClusterID is the ID of the cluster that requests the resources.
	//
	// +optional
	ConsumerClusterID *core.ClusterID `json:"consumerClusterID,omitempty"`

	// ProviderClusterID is the ID of the provider.
	//
	// +optional
	ProviderClusterID *core.ClusterID `json:"providerClusterID,omitempty"`

	// Resources are the requested resources. The provider decides about resources that are not listed.
	//
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`

	// Class names the controller that decides on the ResourceSlice.
	//
	// +optional
	Class ResourceSliceClass `json:"class,omitempty"`

	// CSR is the request, in PEM, for the certificate of the user.
	//
	// +optional
	CSR []byte `json:"csr,omitempty"`
}

// ResourceSliceConditionType is the subject of a decision.
//
// +kubebuilder:validation:Enum=Authentication;Resources
type ResourceSliceConditionType string

// Conditions of a ResourceSlice.
const (
	// AuthenticationCondition reports whether the certificate was issued.
	AuthenticationCondition ResourceSliceConditionType = "Authentication"
	// ResourcesCondition reports whether the resources were granted.
	ResourcesCondition ResourceSliceConditionType = "Resources"
)

// ResourceSliceConditionStatus is a decision.
//
// +kubebuilder:validation:Enum=Accepted;Denied
type ResourceSliceConditionStatus string

// Decisions of the provider.
const (
	ResourceSliceAccepted ResourceSliceConditionStatus = "Accepted"
	ResourceSliceDenied   ResourceSliceConditionStatus = "Denied"
)

// ResourceSliceCondition is a decision and the reason for it.
type ResourceSliceCondition struct {
	// Type is the subject of the decision.
	Type ResourceSliceConditionType `json:"type"`

	// Status is the decision.
	Status ResourceSliceConditionStatus `json:"status"`

	// LastTransitionTime is the time of the last change of the status.
	//
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`

	// Reason is a CamelCase word for the decision.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message is a human-readable explanation of the decision.
	//
	// +optional
	Message string `json:"message,omitempty"`
}

// ResourceSliceStatus is the response.
type ResourceSliceStatus struct {
	// Conditions are the decisions of the provider.
	//
	// +optional
	Conditions []ResourceSliceCondition `json:"conditions,omitempty"`

	// Resources are the granted resources.
	//
	// +optional
	Resources corev1.ResourceList `json:"resources,omitempty"`

	// AuthParams are the credentials of the user for the provider.
	//
	// +optional
	AuthParams *AuthParams `json:"authParams,omitempty"`

	// StorageClasses are the storage classes that the provider offers.
	//
	// +optional
	StorageClasses []offloading.StorageType `json:"storageClasses,omitempty"`

	// IngressClasses are the ingress classes that the provider offers.
	//
	// +optional
	IngressClasses []offloading.IngressType `json:"ingressClasses,omitempty"`

	// LoadBalancerClasses are the load balancer classes that the provider offers.
	//
	// +optional
	LoadBalancerClasses []offloading.LoadBalancerType `json:"loadBalancerClasses,omitempty"`

	// NodeLabels are added to the virtual node.
	//
	// +optional
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`

	// NodeSelector is added to offloaded pods.
	//
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
}

// Condition returns the decision about t, or nil if there is none.
func (s *ResourceSliceStatus) Condition(t ResourceSliceConditionType) *ResourceSliceCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// Decision returns the status of the decision about t, or "" if there is none.
func (s *ResourceSliceStatus) Decision(t ResourceSliceConditionType) ResourceSliceConditionStatus {
	if condition := s.Condition(t); condition != nil {
		return condition.Status
	}
	return ""
}

// ResourceSliceUser returns the name of the user that a consumer gets for a ResourceSlice: the name of the
// ResourceSlice, and the first six bytes of the SHA-256 of the consumer's cluster ID.
func ResourceSliceUser(slice, consumer string) string {
	sum := sha256.Sum256([]byte(consumer))
	return fmt.Sprintf("%s-%x", slice, sum[:6])
}
