// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ReflectedResource makes every virtual kubelet reflect the objects of an additional resource, in offloaded
// namespaces, until it is deleted. Like a CustomResourceDefinition it is named after the plural and group of the
// resource ("certificates.cert-manager.io"), so that there is one for each.
//
// Deleting it stops the reflection; the copies on the providers are not deleted.
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

// ReflectionPolicy selects the reflected objects by their annotations.
//
// +kubebuilder:validation:Enum=DenyList;AllowList
type ReflectionPolicy string

// The reflection policies.
const (
	// DenyListPolicy: all except those with the annotation liqo.io/skip-reflection.
	DenyListPolicy ReflectionPolicy = "DenyList"
	// AllowListPolicy: only those with the annotation liqo.io/allow-reflection.
	AllowListPolicy ReflectionPolicy = "AllowList"
)

// ReflectedResourceSpec is the resource to reflect, and its settings.
//
// +kubebuilder:validation:XValidation:rule="!(size(self.group) == 0 && self.resource in ['pods','services','configmaps','secrets','persistentvolumeclaims','events','serviceaccounts'])",message="this resource is always reflected: configure it with the flags of the virtual kubelet"
// +kubebuilder:validation:XValidation:rule="!(self.group == 'discovery.k8s.io' && self.resource == 'endpointslices') && !(self.group == 'networking.k8s.io' && self.resource in ['ingresses','networkpolicies']) && !(self.group == 'policy' && self.resource == 'poddisruptionbudgets') && !(self.group == 'events.k8s.io' && self.resource == 'events')",message="this resource is always reflected: configure it with the flags of the virtual kubelet"
// +kubebuilder:validation:XValidation:rule="self.group != 'offloading.liqo.io' && self.group != 'plugins.refract.io'",message="the resources that reflection itself is made of cannot be reflected"
type ReflectedResourceSpec struct {
	// Group of the objects, empty for the core group.
	//
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Group string `json:"group"`

	// Version of the objects in this cluster.
	//
	// +kubebuilder:validation:Pattern=`^v[0-9]+((alpha|beta)[0-9]+)?$`
	Version string `json:"version"`

	// Resource is the plural, "certificates".
	//
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Resource string `json:"resource"`

	// Target is the resource of the copies on the provider. Default: the same resource.
	//
	// +optional
	Target *TargetResource `json:"target,omitempty"`

	// Policy selects the reflected objects.
	//
	// +kubebuilder:default=DenyList
	// +optional
	Policy ReflectionPolicy `json:"policy,omitempty"`

	// Workers is the maximum number of objects that each virtual kubelet reconciles at once. 0 pauses the reflection.
	//
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	Workers *int32 `json:"workers,omitempty"`

	// StatusBack reflects the status of the provider's copy back to the object. Leave it off if a controller of this cluster
	// writes the status.
	//
	// +optional
	StatusBack bool `json:"statusBack,omitempty"`

	// PodSpecPaths are the paths of pod specs in the objects, with * for any key or element: "spec.template.spec". There
	// plugins cannot enable host namespaces, and the engine disables them. Deployments, Jobs and the other kinds of
	// Kubernetes itself need none.
	//
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=256
	// +optional
	PodSpecPaths []string `json:"podSpecPaths,omitempty"`

	// CopyDefinition creates the CustomResourceDefinition on the provider if it has none of that name. An existing one
	// is never changed.
	//
	// +optional
	CopyDefinition bool `json:"copyDefinition,omitempty"`
}

// GroupVersionResource of the objects in this cluster.
func (s *ReflectedResourceSpec) GroupVersionResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: s.Group, Version: s.Version, Resource: s.Resource}
}

// TargetResource names a resource of the provider.
type TargetResource struct {
	// Group of the copies, empty for the core group.
	//
	// +kubebuilder:default=""
	// +optional
	Group string `json:"group"`

	// Version of the copies.
	//
	// +kubebuilder:validation:Pattern=`^v[0-9]+((alpha|beta)[0-9]+)?$`
	Version string `json:"version"`

	// Resource is the plural.
	//
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Resource string `json:"resource"`
}

// ReflectedResourceStatus is the state of the reflection on each virtual node.
type ReflectedResourceStatus struct {
	// VirtualNodes has one entry per virtual node, written by its virtual kubelet.
	//
	// +listType=map
	// +listMapKey=name
	// +optional
	VirtualNodes []VirtualNodeReflection `json:"virtualNodes,omitempty"`
}

// VirtualNodeReflection is the state of the reflection on one virtual node.
type VirtualNodeReflection struct {
	// Name of the virtual node.
	Name string `json:"name"`

	// VirtualNode is the name of its VirtualNode, if it is different.
	//
	// +optional
	VirtualNode string `json:"virtualNode,omitempty"`

	// ClusterID of its provider.
	//
	// +optional
	ClusterID string `json:"clusterID,omitempty"`

	// Conditions: Ready reports whether objects are reflected, and if not, why.
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
	// ReflectingReason: objects are reflected.
	ReflectingReason = "Reflecting"
	// PausedReason: there are no workers.
	PausedReason = "Paused"
	// MissingDefinitionReason: one of the clusters does not serve the resource.
	MissingDefinitionReason = "MissingDefinition"
	// MissingPermissionReason: the virtual kubelet lacks a permission; the message has the rule to add.
	MissingPermissionReason = "MissingPermission"
	// NotReflectableReason: objects of this resource cannot be reflected, or not with these settings.
	NotReflectableReason = "NotReflectable"
	// UnreachableReason: an API server did not respond.
	UnreachableReason = "Unreachable"
)
