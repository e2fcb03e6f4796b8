// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/refract-project/refract/api/core/v1beta1"
)

// VirtualNode describes a node of the consumer that represents resources of a provider. It is in the tenant namespace
// of the provider. Its Node has the same name, and so has the ServiceAccount of its virtual kubelet.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vn;vnode;virno;vno,categories=liqo
// +kubebuilder:printcolumn:name="ClusterID",type=string,JSONPath=`.spec.clusterID`
// +kubebuilder:printcolumn:name="Create Node",type=boolean,JSONPath=`.spec.createNode`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="VirtualKubelet",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="VirtualKubelet")].status`
// +kubebuilder:printcolumn:name="Node",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Node")].status`
type VirtualNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec VirtualNodeSpec `json:"spec,omitempty"`
	// +optional
	Status VirtualNodeStatus `json:"status,omitempty"`
}

// VirtualNodeList is a list of VirtualNodes.
//
// +kubebuilder:object:root=true
type VirtualNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualNode `json:"items"`
}

// VirtualNodeSpec contains the resources of the node and the configuration of its virtual kubelet.
type VirtualNodeSpec struct {
	// ClusterID is the ID of the provider.
	//
	// +optional
	ClusterID corev1beta1.ClusterID `json:"clusterID,omitempty"`

	// Template is the Deployment of the virtual kubelet. It is stored without a schema, because it is generated, and
	// the Deployment is validated when it is created.
	//
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Template *DeploymentTemplate `json:"template,omitempty"`

	// OffloadingPatch is applied to every pod that runs on this node.
	//
	// +optional
	OffloadingPatch *OffloadingPatch `json:"offloadingPatch,omitempty"`

	// CreateNode determines whether a Node is created. The default is the field createNode of the VkOptionsTemplate.
	//
	// +optional
	CreateNode *bool `json:"createNode,omitempty"`

	// DisableNetworkCheck excludes the state of the network from the node's
	// readiness, and omits the condition NetworkUnavailable.
	//
	// +optional
	DisableNetworkCheck *bool `json:"disableNetworkCheck,omitempty"`

	// KubeconfigSecretRef names a Secret of this namespace whose key
	// "kubeconfig" has the kubeconfig of the provider.
	//
	// +optional
	KubeconfigSecretRef *corev1.LocalObjectReference `json:"kubeconfigSecretRef,omitempty"`

	// Images are copied into the status of the Node.
	//
	// +optional
	Images []corev1.ContainerImage `json:"images,omitempty"`

	// ResourceQuota determines the resources of the Node: its hard limits become the capacity and the allocatable
	// resources.
	//
	// +optional
	ResourceQuota corev1.ResourceQuotaSpec `json:"resourceQuota,omitempty"`

	// Labels are copied to the Node.
	//
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations are copied to the Node.
	//
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`

	// Taints are added to the taint of every virtual node.
	//
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`

	// StorageClasses are the storage classes that the provider offers.
	//
	// +optional
	StorageClasses []StorageType `json:"storageClasses,omitempty"`

	// IngressClasses are the ingress classes that the provider offers.
	//
	// +optional
	IngressClasses []IngressType `json:"ingressClasses,omitempty"`

	// LoadBalancerClasses are the load balancer classes that the provider offers.
	//
	// +optional
	LoadBalancerClasses []LoadBalancerType `json:"loadBalancerClasses,omitempty"`

	// VkOptionsTemplateRef names the VkOptionsTemplate from which the template is generated. If it is not set, the
	// VkOptionsTemplate of the installation is used.
	//
	// +optional
	VkOptionsTemplateRef *corev1.ObjectReference `json:"vkOptionsTemplateRef,omitempty"`
}

// DeploymentTemplate is a Deployment without its name and status.
type DeploymentTemplate struct {
	// Metadata is the metadata of the Deployment.
	Metadata metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the spec of the Deployment.
	Spec appsv1.DeploymentSpec `json:"spec,omitempty"`
}

// OffloadingPatch contains changes for all objects, or for all pods, that a virtual node reflects to its provider.
type OffloadingPatch struct {
	// NodeSelector replaces the node selector of offloaded pods.
	//
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations are added to the tolerations of offloaded pods.
	//
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`

	// Affinity is set on offloaded pods.
	//
	// +optional
	Affinity *Affinity `json:"affinity,omitempty"`

	// RuntimeClassName is set on pods that have no runtime class.
	//
	// +optional
	RuntimeClassName *string `json:"runtimeClassName,omitempty"`

	// AnnotationsNotReflected are the keys of annotations that are not reflected.
	//
	// +optional
	AnnotationsNotReflected []string `json:"annotationsNotReflected,omitempty"`

	// LabelsNotReflected are the keys of labels that are not reflected.
	//
	// +optional
	LabelsNotReflected []string `json:"labelsNotReflected,omitempty"`
}

// Affinity is the part of an affinity that can apply to all pods of a virtual node.
type Affinity struct {
	// NodeAffinity selects nodes of the provider.
	//
	// +optional
	NodeAffinity *corev1.NodeAffinity `json:"nodeAffinity,omitempty"`
}

// StorageType is a storage class of the provider.
type StorageType struct {
	// StorageClassName names the class.
	StorageClassName string `json:"storageClassName"`

	// Default is true for the class that is used for claims without a class.
	//
	// +optional
	Default bool `json:"default,omitempty"`
}

// IngressType is an ingress class of the provider.
type IngressType struct {
	// IngressClassName names the class.
	IngressClassName string `json:"ingressClassName"`

	// Default is true for the class that is used for Ingresses without a class.
	//
	// +optional
	Default bool `json:"default,omitempty"`
}

// LoadBalancerType is a load balancer class of the provider.
type LoadBalancerType struct {
	// LoadBalancerClassName names the class.
	LoadBalancerClassName string `json:"loadBalancerClassName"`

	// Default is true for the class that is used for Services without a class.
	//
	// +optional
	Default bool `json:"default,omitempty"`
}

// VirtualNodeStatus is the state of the virtual node.
type VirtualNodeStatus struct {
	// Conditions contains one condition for the virtual kubelet and one for the Node.
	//
	// +optional
	Conditions []VirtualNodeCondition `json:"conditions,omitempty"`

	// EffectiveOffloadingPatch is spec.offloadingPatch with the additional labels and annotations of the
	// VkOptionsTemplate that are not reflected.
	//
	// +optional
	EffectiveOffloadingPatch *OffloadingPatch `json:"effectiveOffloadingPatch,omitempty"`
}

// VirtualNodeConditionType names a component of a virtual node.
//
// +kubebuilder:validation:Enum=VirtualKubelet;Node
type VirtualNodeConditionType string

// Components of a virtual node.
const (
	VirtualKubeletConditionType VirtualNodeConditionType = "VirtualKubelet"
	NodeConditionType           VirtualNodeConditionType = "Node"
)

// VirtualNodeConditionStatus is the state of a component.
//
// +kubebuilder:validation:Enum=None;Running;Creating;Draining;Deleting
type VirtualNodeConditionStatus string

// States of a component.
const (
	NoneConditionStatus     VirtualNodeConditionStatus = "None"
	RunningConditionStatus  VirtualNodeConditionStatus = "Running"
	CreatingConditionStatus VirtualNodeConditionStatus = "Creating"
	DrainingConditionStatus VirtualNodeConditionStatus = "Draining"
	DeletingConditionStatus VirtualNodeConditionStatus = "Deleting"
)

// VirtualNodeCondition is the state of a component of a virtual node.
type VirtualNodeCondition struct {
	// Type is the component that the condition describes.
	Type VirtualNodeConditionType `json:"type"`

	// Status is the state of the component.
	//
	// +kubebuilder:default=None
	Status VirtualNodeConditionStatus `json:"status"`

	// LastTransitionTime is the time of the last change of the status.
	//
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`

	// Reason is a CamelCase word for the last change.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message is a human-readable description of the last change.
	//
	// +optional
	Message string `json:"message,omitempty"`
}
