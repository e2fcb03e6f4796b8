// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VkOptionsTemplate configures virtual kubelets and their reflection.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=vkot;vkopt,categories=liqo
type VkOptionsTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec VkOptionsTemplateSpec `json:"spec,omitempty"`
}

// VkOptionsTemplateList is a list of VkOptionsTemplates.
//
// +kubebuilder:object:root=true
type VkOptionsTemplateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VkOptionsTemplate `json:"items"`
}

// ReflectionType determines which objects of a kind are reflected.
//
// +kubebuilder:validation:Enum=DenyList;AllowList;CustomLiqo
type ReflectionType string

// Reflection types.
const (
	// DenyList reflects all objects except those with the annotation liqo.io/skip-reflection.
	DenyList ReflectionType = "DenyList"
	// AllowList reflects only objects with the annotation liqo.io/allow-reflection.
	AllowList ReflectionType = "AllowList"
	// CustomLiqo means that the kind has its own rules and the annotations are ignored.
	CustomLiqo ReflectionType = "CustomLiqo"
)

// ReflectorConfig configures the reflection of one kind.
type ReflectorConfig struct {
	// NumWorkers is the maximum number of objects of the kind that are reconciled concurrently. 0 disables the
	// reflection of the kind.
	NumWorkers uint `json:"workers"`

	// Type determines which objects of the kind are reflected.
	//
	// +optional
	Type ReflectionType `json:"type,omitempty"`
}

// VkOptionsTemplateSpec is the configuration of virtual kubelets.
type VkOptionsTemplateSpec struct {
	// CreateNode is the default of VirtualNode.spec.createNode.
	CreateNode bool `json:"createNode"`

	// DisableNetworkCheck is the default of VirtualNode.spec.disableNetworkCheck.
	DisableNetworkCheck bool `json:"disableNetworkCheck"`

	// ContainerImage is the image of the virtual kubelet.
	ContainerImage string `json:"containerImage"`

	// MetricsEnabled enables the metrics of the virtual kubelet.
	MetricsEnabled bool `json:"metricsEnabled"`

	// MetricsAddress is the address, as host:port, at which the metrics are served.
	//
	// +optional
	MetricsAddress string `json:"metricsAddress,omitempty"`

	// LabelsNotReflected are the keys of labels that are not reflected.
	//
	// +optional
	LabelsNotReflected []string `json:"labelsNotReflected,omitempty"`

	// AnnotationsNotReflected are the keys of annotations that are not reflected.
	//
	// +optional
	AnnotationsNotReflected []string `json:"annotationsNotReflected,omitempty"`

	// ReflectorsConfig configures the reflection of each kind: pod, service,
	// endpointslice, ingress, configmap, secret, serviceaccount,
	// persistentvolumeclaim, event, networkpolicy, poddisruptionbudget.
	//
	// +optional
	ReflectorsConfig map[string]ReflectorConfig `json:"reflectorsConfig,omitempty"`

	// Resources are the resources of the virtual kubelet's container.
	//
	// +optional
	Resources corev1.ResourceRequirements `json:"resources,omitempty"`

	// ExtraArgs are added to the virtual kubelet's arguments.
	//
	// +optional
	ExtraArgs []string `json:"extraArgs,omitempty"`

	// ExtraAnnotations are added to the virtual kubelet's pods.
	//
	// +optional
	ExtraAnnotations map[string]string `json:"extraAnnotations,omitempty"`

	// ExtraLabels are added to the virtual kubelet's pods.
	//
	// +optional
	ExtraLabels map[string]string `json:"extraLabels,omitempty"`

	// NodeExtraAnnotations are added to the Node.
	//
	// +optional
	NodeExtraAnnotations map[string]string `json:"nodeExtraAnnotations,omitempty"`

	// NodeExtraLabels are added to the Node.
	//
	// +optional
	NodeExtraLabels map[string]string `json:"nodeExtraLabels,omitempty"`

	// Replicas is the number of replicas of the virtual kubelet. One of them is active.
	//
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`

	// ImagePullSecrets are the Secrets with which the image is pulled.
	//
	// +optional
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	// PullPolicy is the pull policy of the image.
	//
	// +optional
	PullPolicy corev1.PullPolicy `json:"pullPolicy,omitempty"`

	// Tolerations are the tolerations of the virtual kubelet's pods.
	//
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}
