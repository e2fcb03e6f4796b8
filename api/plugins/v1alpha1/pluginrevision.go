// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PluginRevision is an accepted module with its configuration. The controller manager creates and deletes it; it is never changed.
// Selection, priority, failure policy and rollout are those of the ReflectionPlugin.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=refract
// +kubebuilder:printcolumn:name="Plugin",type=string,JSONPath=`.spec.plugin`
// +kubebuilder:printcolumn:name="Number",type=integer,JSONPath=`.spec.number`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.spec.manifest.version`
// +kubebuilder:printcolumn:name="Source",type=string,priority=10,JSONPath=`.spec.source`
// +kubebuilder:printcolumn:name="SHA256",type=string,priority=10,JSONPath=`.spec.sha256`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.virtualNodes[*].state`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PluginRevision struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the revision.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a revision is never changed"
	Spec PluginRevisionSpec `json:"spec"`
	// +optional
	Status PluginRevisionStatus `json:"status,omitempty"`
}

// PluginRevisionList is a list of PluginRevisions.
//
// +kubebuilder:object:root=true
type PluginRevisionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PluginRevision `json:"items"`
}

// PluginRevisionSpec is a module with its configuration.
type PluginRevisionSpec struct {
	// Plugin is the name of the ReflectionPlugin.
	//
	// +kubebuilder:validation:MaxLength=40
	Plugin string `json:"plugin"`

	// Number of the revision, counted from 1 for each plugin.
	//
	// +kubebuilder:validation:Minimum=1
	Number int64 `json:"number"`

	// SHA256 of the module. The names of its PluginModules begin with it.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256"`

	// Size of the module, in bytes.
	//
	// +kubebuilder:validation:Minimum=1
	Size int64 `json:"size"`

	// Parts is the number of its PluginModules.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Parts int32 `json:"parts"`

	// Source that it was fetched from, with the digest of an image.
	Source string `json:"source"`

	// PolicyName is the name by which the policy of signatures knows the source: a repository without a tag, an https URL, or configMap/NAME.
	//
	// +kubebuilder:validation:MinLength=1
	PolicyName string `json:"policyName"`

	// Signer is the fingerprint of the public key that has signed it, empty if the signature was not verified.
	//
	// +optional
	Signer string `json:"signer,omitempty"`

	// Manifest of the module.
	Manifest PluginManifest `json:"manifest"`

	// Config of the plugin.
	//
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Config *runtime.RawExtension `json:"config,omitempty"`

	// Writes restricts those of the manifest. Absent: all of them; empty: none.
	//
	// +listType=set
	// +optional
	Writes []string `json:"writes,omitzero"`

	// Capabilities that the cluster grants.
	//
	// +listType=set
	// +optional
	Capabilities []PluginCapability `json:"capabilities,omitempty"`

	// Limits of each call.
	//
	// +optional
	Limits *PluginLimits `json:"limits,omitempty"`
}

// PluginManifest is the self-description of a module.
type PluginManifest struct {
	// Name of the module.
	//
	// +optional
	Name string `json:"name,omitempty"`

	// Version of the module.
	//
	// +optional
	Version string `json:"version,omitempty"`

	// Kinds that it is for.
	//
	// +listType=atomic
	// +optional
	Kinds []string `json:"kinds,omitempty"`

	// Hooks that it has.
	//
	// +listType=atomic
	// +optional
	Hooks []string `json:"hooks,omitempty"`

	// Writes are the paths that it may change.
	//
	// +listType=atomic
	// +optional
	Writes []string `json:"writes,omitempty"`

	// Capabilities that the module requests.
	//
	// +listType=atomic
	// +optional
	Capabilities []string `json:"capabilities,omitempty"`
}

// PluginRevisionStatus is the state of a revision on each virtual node.
type PluginRevisionStatus struct {
	// VirtualNodes has one entry per virtual node, written by its virtual kubelet.
	//
	// +listType=map
	// +listMapKey=name
	// +optional
	VirtualNodes []VirtualNodePlugin `json:"virtualNodes,omitempty"`
}

// PluginState is the state of a revision on a virtual node.
//
// +kubebuilder:validation:Enum=Loading;Rehearsing;Standby;Active;RolledBack;Failed
type PluginState string

// The states of a revision on a virtual node.
const (
	LoadingPlugin    PluginState = "Loading"
	RehearsingPlugin PluginState = "Rehearsing"
	StandbyPlugin    PluginState = "Standby"
	ActivePlugin     PluginState = "Active"
	RolledBackPlugin PluginState = "RolledBack"
	FailedPlugin     PluginState = "Failed"
)

// VirtualNodePlugin is the state of a revision on one virtual node.
type VirtualNodePlugin struct {
	// Name of the virtual node.
	Name string `json:"name"`

	// State of the revision.
	State PluginState `json:"state"`

	// Reason of the state, in CamelCase.
	//
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message with the remedy.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`
}
