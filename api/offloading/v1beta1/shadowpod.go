// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ShadowPod is a pod that a consumer requests on this provider. The pod has the same name and namespace. If the pod
// is lost, it is recreated, even while the consumer is unreachable.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas
// +kubebuilder:resource:shortName=shp;shpod,categories=liqo
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ShadowPod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec ShadowPodSpec `json:"spec,omitempty"`
	// +optional
	Status ShadowPodStatus `json:"status,omitempty"`
}

// ShadowPodList is a list of ShadowPods.
//
// +kubebuilder:object:root=true
type ShadowPodList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ShadowPod `json:"items"`
}

// ShadowPodSpec is the desired pod.
type ShadowPodSpec struct {
	// Pod is the spec of the pod. The CRD stores it without a schema, so that unknown fields are preserved; the API
	// server validates the pod when it is created. The field is atomic, because a single writer owns all of it, so
	// the API server need not track the owner of every field in it.
	//
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +mapType=atomic
	// +optional
	Pod corev1.PodSpec `json:"pod,omitempty"`

	// Replicas is always 1. It is shown by the scale subresource, from which Kubernetes determines how many pods a
	// PodDisruptionBudget expects.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
}

// ShadowPodStatus is the state of the pod.
type ShadowPodStatus struct {
	// Phase is the phase of the pod. After Succeeded or Failed, the pod is not recreated.
	//
	// +kubebuilder:validation:Enum=Pending;Running;Succeeded;Failed;Unknown
	// +kubebuilder:default=Unknown
	Phase corev1.PodPhase `json:"phase"`

	// Conditions are the conditions of the ShadowPod. Admitted is False if this cluster does not allow the pod, or a
	// change of it. The message names the field and the rule.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// PodSpecHash is a hash of the last pod's spec. It is set if spec.pod was changed after the ShadowPod was
	// created. A pod with this spec is recreated even while its Quota is cordoned.
	//
	// +optional
	PodSpecHash string `json:"podSpecHash,omitempty"`
}

// ShadowPodAdmitted is the type of the condition that reports whether the provider allows the pod.
const ShadowPodAdmitted = "Admitted"
