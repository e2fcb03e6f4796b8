// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ReflectedResource makes every virtual kubelet reflect the objects of an additional resource in offloaded
// namespaces. Like a CustomResourceDefinition, it is named after the plural and the group of the resource
// ("certificates.cert-manager.io"), so that each resource can have only one.
//
// If the ReflectedResource is deleted, the reflection stops. The copies on the providers are not deleted.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=refl,categories=refract
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.version`
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.policy`
// +kubebuilder:printcolumn:name="Status Back",type=boolean,JSONPath=`.spec.statusBack`
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.status.virtualNodes[*].name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.virtualNodes[*].conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Message",type=string,priority=10,JSONPath=`.status.virtualNodes[*].conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.resource + (size(self.spec.group) == 0 ? self.spec.group : '.' + self.spec.group)",message="a ReflectedResource must be named <spec.resource>.<spec.group>, or <spec.resource> when the group is the core one: there is one per resource"
type ReflectedResource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the resource to reflect.
	Spec ReflectedResourceSpec `json:"spec"`
	// +optional
	Status ReflectedResourceStatus `json:"status,omitempty"`
}

// ReflectedResourceList is a list of ReflectedResources.
//
// +kubebuilder:object:root=true
type ReflectedResourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ReflectedResource `json:"items"`
}

// ReflectionPolicy determines from annotations which objects are reflected.
//
// +kubebuilder:validation:Enum=DenyList;AllowList
type ReflectionPolicy string

// Reflection policies.
const (
	// DenyListPolicy reflects all objects except those with the annotation liqo.io/skip-reflection.
	DenyListPolicy ReflectionPolicy = "DenyList"
	// AllowListPolicy reflects only objects with the annotation liqo.io/allow-reflection.
	AllowListPolicy ReflectionPolicy = "AllowList"
)

// ReflectedResourceSpec is the resource to reflect, and its settings.
//
// +kubebuilder:validation:XValidation:rule="!(size(self.group) == 0 && self.resource in ['pods','services','configmaps','secrets','serviceaccounts','persistentvolumeclaims','events'])",message="this resource is always reflected: configure it with the flags of the virtual kubelet"
// +kubebuilder:validation:XValidation:rule="!(self.group == 'discovery.k8s.io' && self.resource in ['endpointslices']) && !(self.group == 'events.k8s.io' && self.resource in ['events']) && !(self.group == 'networking.k8s.io' && self.resource in ['ingresses','networkpolicies']) && !(self.group == 'policy' && self.resource in ['poddisruptionbudgets'])",message="this resource is always reflected: configure it with the flags of the virtual kubelet"
// +kubebuilder:validation:XValidation:rule="self.group != 'offloading.liqo.io' && self.group != 'plugins.refract.io'",message="the resources that reflection itself is made of cannot be reflected"
type ReflectedResourceSpec struct {
	// Group is the API group of the objects, empty for the core group.
	//
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Group string `json:"group"`

	// Version is the API version of the objects in this cluster.
	//
	// +kubebuilder:validation:Pattern=`^v[0-9]+((alpha|beta)[0-9]+)?$`
	Version string `json:"version"`

	// Resource is the plural name of the resource, for example "certificates".
	//
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Resource string `json:"resource"`

	// Target is the resource of the copies on the provider. The default is the same resource.
	//
	// +optional
	Target *TargetResource `json:"target,omitempty"`

	// Policy determines which objects are reflected.
	//
	// +kubebuilder:default=DenyList
	// +optional
	Policy ReflectionPolicy `json:"policy,omitempty"`

	// Workers is the maximum number of objects that each virtual kubelet reconciles concurrently. 0 pauses the
	// reflection.
	//
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	Workers *int32 `json:"workers,omitempty"`

	// StatusBack means that the status of the provider's copy is written to the local object. Leave it disabled if a
	// controller of this cluster writes the status.
	//
	// +optional
	StatusBack bool `json:"statusBack,omitempty"`

	// PodSpecPaths are the paths of pod specs in the objects, for example "spec.template.spec". A * means any key or
	// element. At these paths, plugins cannot enable host namespaces, and the engine disables them. Kinds of
	// Kubernetes itself, such as Deployments and Jobs, do not need this field.
	//
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +optional
	PodSpecPaths []string `json:"podSpecPaths,omitempty"`

	// CopyDefinition creates the CustomResourceDefinition on the provider if it does not exist there. An existing one
	// is never changed.
	//
	// +optional
	CopyDefinition bool `json:"copyDefinition,omitempty"`
}

// GroupVersionResource returns the resource of the objects in this cluster.
func (s *ReflectedResourceSpec) GroupVersionResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: s.Group, Version: s.Version, Resource: s.Resource}
}

// TargetResource names a resource of the provider.
type TargetResource struct {
	// Group is the API group of the copies, empty for the core group.
	//
	// +kubebuilder:default=""
	// +optional
	Group string `json:"group"`

	// Version is the API version of the copies.
	//
	// +kubebuilder:validation:Pattern=`^v[0-9]+((alpha|beta)[0-9]+)?$`
	Version string `json:"version"`

	// Resource is the plural name of the resource.
	//
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Resource string `json:"resource"`
}

// ReflectedResourceStatus is the state of the reflection on each virtual node.
type ReflectedResourceStatus struct {
	// VirtualNodes contains one entry for each virtual node, written by its virtual kubelet.
	//
	// +listType=map
	// +listMapKey=name
	// +optional
	VirtualNodes []VirtualNodeReflection `json:"virtualNodes,omitempty"`
}

// VirtualNodeReflection is the state of the reflection on one virtual node.
type VirtualNodeReflection struct {
	// Name is the name of the virtual node.
	Name string `json:"name"`

	// VirtualNode is the name of the VirtualNode object, if it differs from the name of the virtual node.
	//
	// +optional
	VirtualNode string `json:"virtualNode,omitempty"`

	// ClusterID is the ID of the provider.
	//
	// +optional
	ClusterID string `json:"clusterID,omitempty"`

	// Conditions are the conditions of the reflection. Ready reports whether objects are reflected, and the reason if
	// they are not.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ReadyCondition is the type of the condition that reports whether objects are reflected.
const ReadyCondition = "Ready"

// Reasons of the condition Ready.
const (
	// ReflectingReason means that objects are reflected.
	ReflectingReason = "Reflecting"
	// PausedReason means that the number of workers is 0.
	PausedReason = "Paused"
	// MissingDefinitionReason means that one of the clusters does not serve the resource.
	MissingDefinitionReason = "MissingDefinition"
	// MissingPermissionReason means that the virtual kubelet lacks a permission. The message contains the RBAC rule to
	// add.
	MissingPermissionReason = "MissingPermission"
	// NotReflectableReason means that objects of this resource cannot be reflected, or not with these settings.
	NotReflectableReason = "NotReflectable"
	// UnreachableReason means that an API server did not respond.
	UnreachableReason = "Unreachable"
)
