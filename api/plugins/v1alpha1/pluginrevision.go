// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PluginRevision is an accepted module with its settings. The controller manager creates and deletes it. Its spec is
// never changed. Virtual kubelets run the revision that is active according to the status of the ReflectionPlugin.
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

	// Spec is the module with its settings.
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

// PluginRevisionSpec is a module with its settings.
type PluginRevisionSpec struct {
	// Plugin is the name of the ReflectionPlugin.
	//
	// +kubebuilder:validation:MaxLength=40
	Plugin string `json:"plugin"`

	// Number is the number of the revision, counted from 1 for each plugin.
	//
	// +kubebuilder:validation:Minimum=1
	Number int64 `json:"number"`

	// SHA256 is the SHA-256 of the module. The names of its PluginModules begin with it.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256"`

	// Size is the size of the module in bytes.
	//
	// +kubebuilder:validation:Minimum=1
	Size int64 `json:"size"`

	// Parts is the number of PluginModules of the module.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Parts int32 `json:"parts"`

	// Source is the source from which the module was fetched. For an image, it includes the digest.
	Source string `json:"source"`

	// PolicyName is the name of the source in the signature policy: a repository without a tag, an https URL, or
	// configMap/NAME.
	//
	// +kubebuilder:validation:MinLength=1
	PolicyName string `json:"policyName"`

	// Signer is the fingerprint of the public key whose signature of the module was verified. It is empty if no
	// signature was verified.
	//
	// +optional
	Signer string `json:"signer,omitempty"`

	// Manifest is the manifest of the module.
	Manifest PluginManifest `json:"manifest"`

	// PluginSettings are the settings of the ReflectionPlugin at the time when the revision was created.
	PluginSettings `json:",inline"`
}

// PluginManifest is the description that a module gives of itself.
type PluginManifest struct {
	// Name is the name of the module.
	//
	// +optional
	Name string `json:"name,omitempty"`

	// Version is the version of the module.
	//
	// +optional
	Version string `json:"version,omitempty"`

	// Kinds are the kinds that the module supports.
	//
	// +listType=atomic
	// +optional
	Kinds []string `json:"kinds,omitempty"`

	// Hooks are the hooks that the module implements.
	//
	// +listType=atomic
	// +optional
	Hooks []string `json:"hooks,omitempty"`

	// Writes are the paths that the module may change.
	//
	// +listType=atomic
	// +optional
	Writes []string `json:"writes,omitempty"`

	// Capabilities are the capabilities that the module requests.
	//
	// +listType=atomic
	// +optional
	Capabilities []string `json:"capabilities,omitempty"`
}

// PluginRevisionStatus is the state of a revision on each virtual node.
type PluginRevisionStatus struct {
	// VirtualNodes contains one entry for each virtual node, written by its virtual kubelet.
	//
	// +kubebuilder:validation:MaxItems=256
	// +listType=map
	// +listMapKey=name
	// +optional
	VirtualNodes []VirtualNodePlugin `json:"virtualNodes,omitempty"`
}

// PluginState is the state of a revision on a virtual node.
//
// +kubebuilder:validation:Enum=Loading;Rehearsing;Standby;Active;RolledBack;Failed
type PluginState string

// States of a revision on a virtual node.
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
	// Name is the name of the virtual node.
	Name string `json:"name"`

	// State is the state of the revision.
	State PluginState `json:"state"`

	// Reason is the reason for the state, in CamelCase.
	//
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message describes the problem and its remedy.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	Message string `json:"message,omitempty"`

	// RunningRevision is the earlier PluginRevision of the plugin that the virtual node still runs, because it cannot load
	// this one.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	RunningRevision string `json:"runningRevision,omitempty"`

	// PromotedAt is the value of status.promotedAt in the ReflectionPlugin to which the states Active and RolledBack
	// refer. An entry that refers to another promotion of the same revision has no effect.
	//
	// +optional
	PromotedAt *metav1.Time `json:"promotedAt,omitempty"`

	// ActiveSince is the time since which the virtual node has reflected objects with the revision after the
	// promotion at PromotedAt. The probation on the virtual node begins then. The field is not set while the provider
	// is unreachable.
	//
	// +optional
	ActiveSince *metav1.Time `json:"activeSince,omitempty"`

	// Rehearsal is the result of evaluating the objects of the virtual node with this revision while another revision
	// is active.
	//
	// +optional
	Rehearsal *PluginRehearsalResult `json:"rehearsal,omitempty"`
}

// PluginRehearsalResult counts the objects that a revision would change on one virtual node. It contains names and
// paths, but no values, because values may be secret.
type PluginRehearsalResult struct {
	// Against is the active PluginRevision with which this revision was compared. It is empty if no revision was
	// active.
	//
	// +optional
	Against string `json:"against,omitempty"`

	// OtherRevisions identifies the active PluginRevisions of all other plugins, which the evaluation included. After
	// a change of one of them, this revision is rehearsed again. Virtual kubelets of earlier versions do not set it.
	//
	// +kubebuilder:validation:MaxLength=64
	// +optional
	OtherRevisions string `json:"otherRevisions,omitempty"`

	// Objects is the number of evaluated objects. These are the objects that the plugin touches with this revision or
	// with the active one.
	Objects int64 `json:"objects"`

	// Unchanged is the number of objects whose copies would not change.
	Unchanged int64 `json:"unchanged"`

	// Changed is the number of objects whose copies would change.
	Changed int64 `json:"changed"`

	// Removed is the number of objects whose copies would be deleted.
	Removed int64 `json:"removed"`

	// Errors is the number of objects for which plugins would fail with this revision, but do not fail with the
	// active one.
	Errors int64 `json:"errors"`

	// NotDeterministic is the number of objects for which two instances of the module returned different results.
	//
	// +optional
	NotDeterministic int64 `json:"notDeterministic,omitempty"`

	// Paths are the paths that would change most often.
	//
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	// +optional
	Paths []RehearsedPath `json:"paths,omitempty"`

	// Conflicts are paths that this revision and another plugin of the chain change, so that the later one overwrites
	// the change of the earlier one. Changes by default plugins that this revision overwrites do not count.
	//
	// +kubebuilder:validation:MaxItems=10
	// +listType=atomic
	// +optional
	Conflicts []RehearsedConflict `json:"conflicts,omitempty"`

	// Examples are some of the objects that would not stay unchanged.
	//
	// +kubebuilder:validation:MaxItems=5
	// +listType=atomic
	// +optional
	Examples []RehearsedObject `json:"examples,omitempty"`
}

// RehearsedPath is a path in objects of a kind that would change.
type RehearsedPath struct {
	// Kind is the kind of the objects, with its API group unless it is the core group.
	Kind string `json:"kind"`

	// Path is the path in the object. Elements of lists have no index: spec.ports[].nodePort.
	//
	// +kubebuilder:validation:MaxLength=256
	Path string `json:"path"`

	// Objects is the number of objects in which the path would change.
	Objects int64 `json:"objects"`

	// NewPodsOnly is true for fields that are immutable in a running pod, so that only new pods get the new value.
	//
	// +optional
	NewPodsOnly bool `json:"newPodsOnly,omitempty"`
}

// RehearsedConflict is a path that two plugins of a chain change. One of them is the plugin of the revision.
type RehearsedConflict struct {
	// Kind is the kind of the objects, with its API group unless it is the core group.
	Kind string `json:"kind"`

	// Path is the path in the object, without indices.
	//
	// +kubebuilder:validation:MaxLength=256
	Path string `json:"path"`

	// Plugin is the later plugin, which determines the value.
	//
	// +kubebuilder:validation:MaxLength=253
	Plugin string `json:"plugin"`

	// Earlier is the plugin whose change is overwritten. It is empty if this is the plugin of the revision.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Earlier string `json:"earlier,omitempty"`

	// Objects is the number of objects with the conflict.
	Objects int64 `json:"objects"`
}

// RehearsalOutcome is the effect of a revision on an object.
//
// +kubebuilder:validation:Enum=Changed;Removed;Error;NotDeterministic
type RehearsalOutcome string

// Outcomes for which a rehearsal lists examples.
const (
	ChangedOutcome          RehearsalOutcome = "Changed"
	RemovedOutcome          RehearsalOutcome = "Removed"
	ErrorOutcome            RehearsalOutcome = "Error"
	NotDeterministicOutcome RehearsalOutcome = "NotDeterministic"
)

// RehearsedObject is an example of an outcome.
type RehearsedObject struct {
	// Kind is the kind of the object, with its API group unless it is the core group.
	Kind string `json:"kind"`

	// Namespace is the namespace of the object.
	Namespace string `json:"namespace"`

	// Name is the name of the object.
	Name string `json:"name"`

	// Outcome is the outcome for the object.
	Outcome RehearsalOutcome `json:"outcome"`

	// Message is the message of the error. It is empty for other outcomes.
	//
	// +kubebuilder:validation:MaxLength=256
	// +optional
	Message string `json:"message,omitempty"`
}
