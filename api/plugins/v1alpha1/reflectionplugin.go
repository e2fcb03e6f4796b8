// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ReflectionPlugin declares a plugin: where its module comes from, what it is for, and what it may do. The controller manager fetches and
// verifies the module, tests that it loads with these settings, and stores it as a PluginRevision.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=rp,categories=refract
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.activeRevision`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Kinds",type=string,JSONPath=`.spec.kinds`
// +kubebuilder:printcolumn:name="Priority",type=integer,priority=10,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=10,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40 && self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name: the name of a plugin has at most 40 characters: lower case letters, digits and dashes"
type ReflectionPlugin struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the declaration.
	Spec ReflectionPluginSpec `json:"spec"`
	// +optional
	Status ReflectionPluginStatus `json:"status,omitempty"`
}

// ReflectionPluginList is a list of ReflectionPlugins.
//
// +kubebuilder:object:root=true
type ReflectionPluginList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ReflectionPlugin `json:"items"`
}

// ReflectionPluginSpec is the declaration of a plugin.
//
// +kubebuilder:validation:XValidation:rule="!has(self.replaces) || !self.kinds.exists(k, k == '*')",message="kinds: a plugin that replaces a default plugin names its kinds"
type ReflectionPluginSpec struct {
	// Kinds that the plugin is for, as in manifests: "Service", "Ingress.networking.k8s.io", or "*" for all except Secrets.
	// They restrict the kinds of the module's manifest.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:Pattern=`^(\*|[A-Z][A-Za-z0-9]{0,62}(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?)$`
	// +listType=set
	Kinds []string `json:"kinds"`

	// Priority orders the plugins of a kind, the lowest first; plugins of the same priority are ordered by name.
	//
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Priority int32 `json:"priority,omitempty"`

	// Replaces names the default plugin that this one replaces.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Replaces string `json:"replaces,omitempty"`

	// Match selects objects. All of its fields must match.
	//
	// +optional
	Match *PluginMatch `json:"match,omitempty"`

	// Source of the module.
	Source PluginSource `json:"source"`

	// Config of the plugin, by the schema in the module's manifest.
	//
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Config *runtime.RawExtension `json:"config,omitempty"`

	// Writes restricts the paths of the module's manifest that the plugin may change. Absent: all of them; empty: none.
	//
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=set
	// +optional
	Writes []string `json:"writes,omitzero"`

	// Capabilities that the cluster grants to the module. A module whose manifest asks for one that is not listed is not accepted.
	//
	// +kubebuilder:validation:MaxItems=8
	// +listType=set
	// +optional
	Capabilities []PluginCapability `json:"capabilities,omitempty"`

	// Limits of each call.
	//
	// +optional
	Limits *PluginLimits `json:"limits,omitempty"`

	// FailurePolicy determines the effect of a failure of the plugin on the object: Fail leaves its copy unchanged, Ignore continues without this plugin.
	//
	// +kubebuilder:default=Fail
	// +optional
	FailurePolicy PluginFailurePolicy `json:"failurePolicy,omitempty"`

	// Rollout of new revisions.
	//
	// +kubebuilder:default={}
	// +optional
	Rollout PluginRollout `json:"rollout,omitempty"`

	// Revision pins the active PluginRevision. Empty: the active revision follows the source.
	//
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Revision string `json:"revision,omitempty"`

	// Paused keeps the active revision: nothing is fetched, and no other revision becomes active.
	//
	// +optional
	Paused bool `json:"paused,omitempty"`

	// RevisionHistoryLimit is how many revisions are kept besides the active, the previous, the candidate and the pinned one.
	//
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	// +optional
	RevisionHistoryLimit int32 `json:"revisionHistoryLimit,omitempty"`
}

// PluginCapability is a permission beyond changing fields: "skip" lets a plugin keep objects from being reflected, which deletes their copies.
//
// +kubebuilder:validation:Enum=skip
type PluginCapability string

// PluginFailurePolicy determines the effect of a failure of a plugin on an object.
//
// +kubebuilder:validation:Enum=Fail;Ignore
type PluginFailurePolicy string

// The failure policies.
const (
	FailPluginPolicy   PluginFailurePolicy = "Fail"
	IgnorePluginPolicy PluginFailurePolicy = "Ignore"
)

// PluginMatch selects objects.
type PluginMatch struct {
	// NamespaceSelector selects namespaces of this cluster by their labels.
	//
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// ObjectSelector selects objects by their labels.
	//
	// +optional
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`

	// Providers are the cluster IDs of the providers that the plugin is for. Empty: all.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	Providers []string `json:"providers,omitempty"`
}

// PluginSource is where a module comes from.
//
// +kubebuilder:validation:XValidation:rule="[has(self.oci), has(self.http), has(self.configMap)].filter(x, x).size() == 1",message="set exactly one of oci, http and configMap"
type PluginSource struct {
	// OCI is an image of a registry.
	//
	// +optional
	OCI *OCISource `json:"oci,omitempty"`

	// HTTP is a file of a web server.
	//
	// +optional
	HTTP *HTTPSource `json:"http,omitempty"`

	// ConfigMap is a ConfigMap in the namespace of the installation.
	//
	// +optional
	ConfigMap *ConfigMapSource `json:"configMap,omitempty"`
}

// SecretReference names a Secret in the namespace of the installation.
type SecretReference struct {
	// Name of the Secret.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// OCISource is an image with one layer, the module.
type OCISource struct {
	// Image with its registry, and a tag or a digest. A tag is resolved once, and again only with an interval.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?([.][a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*[.]?|[[][0-9a-fA-F:.]+[]])(:[1-9][0-9]{0,4})?/)?[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)*(:[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127})?(@[a-z0-9]+:[0-9a-f]{64,128})?$')",message="use HOST/PATH:TAG or HOST/PATH@sha256:DIGEST; parts of the path have lower case letters and digits, and between them single dots, underscores or dashes"
	Image string `json:"image"`

	// PullSecret is a Secret of type kubernetes.io/dockerconfigjson. Its credentials are sent to the registry that they are for, and to the server of
	// tokens that this registry names.
	//
	// +optional
	PullSecret *SecretReference `json:"pullSecret,omitempty"`

	// CASecret has the certificate authorities of the registry under ca.crt, instead of those of the system.
	//
	// +optional
	CASecret *SecretReference `json:"caSecret,omitempty"`

	// Interval between two resolutions of the tag. 0s: never again.
	//
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=duration
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || duration(self) >= duration('1m')",message="0s (never) or at least 1m"
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`
}

// HTTPSource is a file of a web server.
type HTTPSource struct {
	// URL of the module. It must be https, and must not redirect to another host or out of its folder. Everybody who reads ReflectionPlugins sees it: it
	// must have no user name and no password.
	//
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https' && url(self).getHostname() != ''",message="use an https URL"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^/]*//[^/?#]*@')",message="remove the user name and password, which everybody could read"
	URL string `json:"url"`

	// SHA256 of the module, in lower case hexadecimal digits.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256"`

	// CASecret has the certificate authorities of the server under ca.crt, instead of those of the system.
	//
	// +optional
	CASecret *SecretReference `json:"caSecret,omitempty"`
}

// ConfigMapSource is a key of a ConfigMap in the namespace of the installation. It is followed when it changes.
type ConfigMapSource struct {
	// Name of the ConfigMap.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key of its binaryData.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// PluginLimits limit each call of a plugin. What is left out is the default of the host.
type PluginLimits struct {
	// Fuel is the amount of work.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	// +optional
	Fuel int64 `json:"fuel,omitempty"`

	// MemoryPages of 64 KiB.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2048
	// +optional
	MemoryPages int32 `json:"memoryPages,omitempty"`

	// OutputBytes that the plugin may write into an object.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=8388608
	// +optional
	OutputBytes int32 `json:"outputBytes,omitempty"`

	// CallDepth is the maximum depth of the call stack.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65536
	// +optional
	CallDepth int32 `json:"callDepth,omitempty"`

	// ModuleBytes is the maximum size of the module.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=33554432
	// +optional
	ModuleBytes int32 `json:"moduleBytes,omitempty"`

	// Handles is the maximum number of handles to values of an object.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048576
	// +optional
	Handles int32 `json:"handles,omitempty"`
}

// RolloutStrategy determines when an accepted revision becomes active.
//
// +kubebuilder:validation:Enum=Immediate;Rehearse
type RolloutStrategy string

// The rollout strategies.
const (
	// ImmediateRollout: as soon as it is accepted.
	ImmediateRollout RolloutStrategy = "Immediate"
	// RehearseRollout: after it was rehearsed on the objects of all reachable virtual nodes.
	RehearseRollout RolloutStrategy = "Rehearse"
)

// RehearsalApproval determines who promotes a revision whose rehearsal stayed within its limits.
//
// +kubebuilder:validation:Enum=Automatic;Manual
type RehearsalApproval string

// The kinds of approval.
const (
	AutomaticApproval RehearsalApproval = "Automatic"
	ManualApproval    RehearsalApproval = "Manual"
)

// PluginRollout determines how new revisions become active.
//
// +kubebuilder:validation:XValidation:rule="self.strategy == 'Rehearse' || !has(self.rehearsal)",message="rehearsal is for the strategy Rehearse"
type PluginRollout struct {
	// Strategy of the rollout.
	//
	// +kubebuilder:default=Rehearse
	// +optional
	Strategy RolloutStrategy `json:"strategy,omitempty"`

	// Rehearsal has the limits within which a revision is promoted.
	//
	// +optional
	Rehearsal *PluginRehearsal `json:"rehearsal,omitempty"`

	// Probation is how long the previous revision can be restored automatically after a promotion.
	//
	// +kubebuilder:default="10m0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=duration
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="between 0s and 24h"
	// +optional
	Probation *metav1.Duration `json:"probation,omitempty"`

	// MaxFailedPercent of the evaluations that may fail in the plugin during the probation.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	MaxFailedPercent *int32 `json:"maxFailedPercent,omitempty"`
}

// PluginRehearsal has the limits within which a rehearsed revision is promoted.
type PluginRehearsal struct {
	// MaxErrors is the number of objects on which the plugins may fail.
	//
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxErrors int32 `json:"maxErrors,omitempty"`

	// MaxChangedPercent of the objects whose copies may change. Absent: no limit.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	MaxChangedPercent *int32 `json:"maxChangedPercent,omitempty"`

	// MaxRemoved is the number of copies that may be removed.
	//
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxRemoved int32 `json:"maxRemoved,omitempty"`

	// Approval determines who promotes a revision within the limits.
	//
	// +kubebuilder:default=Automatic
	// +optional
	Approval RehearsalApproval `json:"approval,omitempty"`

	// Approved is the PluginRevision that may become active whatever its rehearsal has shown.
	//
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Approved string `json:"approved,omitempty"`
}

// Types of the conditions of a ReflectionPlugin, besides ReadyCondition.
const (
	// FetchedCondition reports whether the module was fetched from its source.
	FetchedCondition = "Fetched"
	// VerifiedCondition reports whether the signature of the module satisfies the policy of the installation.
	VerifiedCondition = "Verified"
	// AcceptedCondition reports whether the module loads with these settings.
	AcceptedCondition = "Accepted"
)

// ReflectionPluginStatus is the state of a plugin. The controller manager writes it.
type ReflectionPluginStatus struct {
	// ObservedGeneration is the generation that the status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// ActiveRevision is the PluginRevision that virtual kubelets run.
	//
	// +optional
	ActiveRevision string `json:"activeRevision,omitempty"`

	// PreviousRevision was active before.
	//
	// +optional
	PreviousRevision string `json:"previousRevision,omitempty"`

	// CandidateRevision is accepted, and not active yet.
	//
	// +optional
	CandidateRevision string `json:"candidateRevision,omitempty"`

	// Version of the active revision, from its manifest.
	//
	// +optional
	Version string `json:"version,omitempty"`

	// Nodes is the number of virtual nodes that run the active revision, of all: "3/3".
	//
	// +optional
	Nodes string `json:"nodes,omitempty"`

	// Source is the result of resolving the source.
	//
	// +optional
	Source *PluginSourceStatus `json:"source,omitempty"`

	// Conditions of the plugin: Fetched, Verified, Accepted and Ready.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PluginSourceStatus is the result of resolving a source.
type PluginSourceStatus struct {
	// Fingerprint of spec.source and of the policy about its signature. If it changes, the source is fetched again.
	Fingerprint string `json:"fingerprint"`

	// Resolved is the source, with the digest of an image.
	//
	// +optional
	Resolved string `json:"resolved,omitempty"`

	// SHA256 of the module.
	//
	// +optional
	SHA256 string `json:"sha256,omitempty"`

	// Signer is the fingerprint of the public key that has signed it.
	//
	// +optional
	Signer string `json:"signer,omitempty"`

	// Failures is the number of failed attempts since the last success.
	//
	// +optional
	Failures int32 `json:"failures,omitempty"`

	// NextTry is the time of the next attempt after a failure.
	//
	// +optional
	NextTry *metav1.Time `json:"nextTry,omitempty"`
}
