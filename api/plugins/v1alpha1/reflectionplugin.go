// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ReflectionPlugin declares a plugin: the source of its module, the objects that it mutates, and its permissions. The
// controller manager fetches and verifies the module, tests whether it can be loaded with these settings, and stores
// it as a PluginRevision.
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
	// PluginSettings are the settings for new revisions.
	PluginSettings `json:",inline"`

	// Source is the source of the module.
	Source PluginSource `json:"source"`

	// Rollout determines how new revisions become active.
	//
	// +kubebuilder:default={}
	// +optional
	Rollout PluginRollout `json:"rollout,omitempty"`

	// Revision pins the active PluginRevision. If it is empty, the active revision follows the source.
	//
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Revision string `json:"revision,omitempty"`

	// Paused keeps the active revision: no module is fetched, and no other revision becomes active.
	//
	// +optional
	Paused bool `json:"paused,omitempty"`

	// RevisionHistoryLimit is the number of old revisions that are kept in addition to the active, previous,
	// candidate, rejected, approved and pinned revisions.
	//
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	// +optional
	RevisionHistoryLimit int32 `json:"revisionHistoryLimit,omitempty"`
}

// PluginSettings determine, together with the module, the behavior of a plugin and the objects that it mutates. They
// are part of each revision: every change of the settings creates a new revision, which is rehearsed and can be
// rolled back in the same way as a new module.
type PluginSettings struct {
	// Kinds are the kinds that the plugin is for, in the format of manifests: "Service", "Ingress.networking.k8s.io",
	// or "*" for all kinds except Secrets. They restrict the kinds in the module's manifest.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:Pattern=`^(\*|[A-Z][A-Za-z0-9]{0,62}(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?)$`
	// +listType=set
	Kinds []string `json:"kinds"`

	// Priority determines the order of the plugins of a kind, the lowest first. Plugins of the same priority are
	// ordered by name.
	//
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	// +optional
	Priority int32 `json:"priority,omitempty"`

	// Replaces is the name of the default plugin that this plugin replaces.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Replaces string `json:"replaces,omitempty"`

	// Match selects the objects that the plugin mutates. All of its fields must match.
	//
	// +optional
	Match *PluginMatch `json:"match,omitempty"`

	// Config is the configuration of the plugin. The schema is in the module's manifest.
	//
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +optional
	Config *runtime.RawExtension `json:"config,omitempty"`

	// Writes restricts the paths in the module's manifest that the plugin may change. If it is absent, all of them
	// are allowed. If it is empty, none is.
	//
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=1024
	// +listType=set
	// +optional
	Writes []string `json:"writes,omitzero"`

	// Capabilities are the capabilities that the cluster grants to the module. If the module's manifest requests
	// another one, the module is not accepted.
	//
	// +kubebuilder:validation:MaxItems=8
	// +listType=set
	// +optional
	Capabilities []PluginCapability `json:"capabilities,omitempty"`

	// Limits are the limits of each call.
	//
	// +optional
	Limits *PluginLimits `json:"limits,omitempty"`

	// FailurePolicy determines the effect of a failure of the plugin. Fail leaves the copy of the object unchanged.
	// Ignore continues without this plugin.
	//
	// +kubebuilder:default=Fail
	// +optional
	FailurePolicy PluginFailurePolicy `json:"failurePolicy,omitempty"`
}

// PluginCapability is a permission beyond changing fields. "skip" permits a plugin to exclude objects from
// reflection, which deletes their copies.
//
// +kubebuilder:validation:Enum=skip
type PluginCapability string

// PluginFailurePolicy determines the effect of a failure of a plugin on an object.
//
// +kubebuilder:validation:Enum=Fail;Ignore
type PluginFailurePolicy string

// Failure policies.
const (
	FailPluginPolicy   PluginFailurePolicy = "Fail"
	IgnorePluginPolicy PluginFailurePolicy = "Ignore"
)

// PluginMatch selects the objects that a plugin mutates.
type PluginMatch struct {
	// NamespaceSelector selects namespaces of this cluster by their labels.
	//
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// ObjectSelector selects objects by their labels.
	//
	// +optional
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`

	// Providers are the cluster IDs of the providers that the plugin is for. If the list is empty, the plugin is for
	// all providers.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	// +listType=set
	// +optional
	Providers []string `json:"providers,omitempty"`
}

// PluginSource is the source of a module.
//
// +kubebuilder:validation:XValidation:rule="[has(self.oci), has(self.http), has(self.configMap)].filter(x, x).size() == 1",message="set exactly one of oci, http and configMap"
type PluginSource struct {
	// OCI is an image in a registry.
	//
	// +optional
	OCI *OCISource `json:"oci,omitempty"`

	// HTTP is a file on a web server.
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
	// Name is the name of the Secret.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// OCISource is an image whose only layer is the module.
type OCISource struct {
	// Image is the name of the image, with its registry and a tag or a digest. A tag is resolved once, or repeatedly
	// if an interval is set.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="self.matches('^(([a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?([.][a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)*[.]?|[[][0-9a-fA-F:.]+[]])(:[1-9][0-9]{0,4})?/)?[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+(([.]|_|__|-+)[a-z0-9]+)*)*(:[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127})?(@[a-z0-9]+:[0-9a-f]{64,128})?$')",message="use HOST/PATH:TAG or HOST/PATH@sha256:DIGEST; parts of the path have lower case letters and digits, and between them single dots, underscores or dashes"
	Image string `json:"image"`

	// PullSecret is a Secret of type kubernetes.io/dockerconfigjson. Its credentials are sent to the registry that they
	// are for, and to the token server that this registry names.
	//
	// +optional
	PullSecret *SecretReference `json:"pullSecret,omitempty"`

	// CASecret is a Secret whose key ca.crt contains the certificate authorities of the registry. They replace the
	// authorities of the system.
	//
	// +optional
	CASecret *SecretReference `json:"caSecret,omitempty"`

	// Interval is the time between two resolutions of the tag. 0s means that the tag is not resolved again.
	//
	// +kubebuilder:default="0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=duration
	// +kubebuilder:validation:XValidation:rule="duration(self) == duration('0s') || duration(self) >= duration('1m')",message="0s (never) or at least 1m"
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`
}

// HTTPSource is a file on a web server.
type HTTPSource struct {
	// URL is the URL of the module. It must be an https URL without a user name or password, because everybody who
	// may read ReflectionPlugins can see it. Redirects to another host or out of the folder are not followed.
	//
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https' && url(self).getHostname() != ''",message="use an https URL"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^[^/]*//[^/?#]*@')",message="remove the user name and password, which everybody could read"
	URL string `json:"url"`

	// SHA256 is the SHA-256 of the module in lower case hexadecimal digits.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	SHA256 string `json:"sha256"`

	// CASecret is a Secret whose key ca.crt contains the certificate authorities of the server. They replace the
	// authorities of the system.
	//
	// +optional
	CASecret *SecretReference `json:"caSecret,omitempty"`
}

// ConfigMapSource is a key of a ConfigMap in the namespace of the installation. When the ConfigMap changes, the
// module is fetched again.
type ConfigMapSource struct {
	// Name is the name of the ConfigMap.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key is the key in binaryData.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// PluginLimits limit each call of a plugin. Fields that are not set have the host's defaults.
type PluginLimits struct {
	// Fuel is the maximum amount of work.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	// +optional
	Fuel int64 `json:"fuel,omitempty"`

	// MemoryPages is the maximum size of the memory, in pages of 64 KiB.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2048
	// +optional
	MemoryPages int32 `json:"memoryPages,omitempty"`

	// OutputBytes is the maximum number of bytes that the plugin may write into an object.
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

	// Handles is the maximum number of handles for values of an object.
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

// Rollout strategies.
const (
	// ImmediateRollout means that a revision becomes active as soon as it is accepted.
	ImmediateRollout RolloutStrategy = "Immediate"
	// RehearseRollout means that a revision becomes active after it was rehearsed on the objects of all reachable
	// virtual nodes.
	RehearseRollout RolloutStrategy = "Rehearse"
)

// RehearsalApproval determines who promotes a revision if its rehearsal is within the limits.
//
// +kubebuilder:validation:Enum=Automatic;Manual
type RehearsalApproval string

// Kinds of approval.
const (
	AutomaticApproval RehearsalApproval = "Automatic"
	ManualApproval    RehearsalApproval = "Manual"
)

// PluginRollout determines how new revisions become active.
//
// +kubebuilder:validation:XValidation:rule="self.strategy == 'Rehearse' || !has(self.rehearsal)",message="rehearsal is for the strategy Rehearse"
type PluginRollout struct {
	// Strategy is the strategy of the rollout.
	//
	// +kubebuilder:default=Rehearse
	// +optional
	Strategy RolloutStrategy `json:"strategy,omitempty"`

	// Rehearsal contains the limits within which a revision is promoted.
	//
	// +optional
	Rehearsal *PluginRehearsal `json:"rehearsal,omitempty"`

	// Probation is the time after a promotion in which the previous revision can be restored automatically.
	//
	// +kubebuilder:default="10m0s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=duration
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s') && duration(self) <= duration('24h')",message="between 0s and 24h"
	// +optional
	Probation *metav1.Duration `json:"probation,omitempty"`

	// MaxFailedPercent is the maximum percentage of evaluations in which the plugin may fail during the probation.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	MaxFailedPercent *int32 `json:"maxFailedPercent,omitempty"`
}

// PluginRehearsal contains the limits within which a rehearsed revision is promoted.
type PluginRehearsal struct {
	// MaxErrors is the maximum number of objects for which the plugins may fail.
	//
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxErrors int32 `json:"maxErrors,omitempty"`

	// MaxChangedPercent is the maximum percentage of objects whose copies may change. If it is not set, there is no
	// limit.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	// +optional
	MaxChangedPercent *int32 `json:"maxChangedPercent,omitempty"`

	// MaxRemoved is the maximum number of copies that may be removed.
	//
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +optional
	MaxRemoved int32 `json:"maxRemoved,omitempty"`

	// Approval determines who promotes a revision that is within the limits.
	//
	// +kubebuilder:default=Automatic
	// +optional
	Approval RehearsalApproval `json:"approval,omitempty"`

	// Approved is the name of the PluginRevision that may become active regardless of the result of its rehearsal.
	//
	// +kubebuilder:validation:MaxLength=63
	// +optional
	Approved string `json:"approved,omitempty"`
}

// Types of the conditions of a ReflectionPlugin, in addition to ReadyCondition.
const (
	// FetchedCondition reports whether the module was fetched from its source.
	FetchedCondition = "Fetched"
	// VerifiedCondition reports whether the signature of the module satisfies the policy of the installation.
	VerifiedCondition = "Verified"
	// AcceptedCondition reports whether the module can be loaded with these settings.
	AcceptedCondition = "Accepted"
	// RehearsedCondition reports whether the rehearsal of the candidate is complete and within the limits of the
	// rollout.
	RehearsedCondition = "Rehearsed"
)

// ReflectionPluginStatus is the state of a plugin. The controller manager writes it.
type ReflectionPluginStatus struct {
	// ObservedGeneration is the generation that the status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// ActiveRevision is the PluginRevision that virtual kubelets run.
	//
	// +optional
	ActiveRevision string `json:"activeRevision,omitempty"`

	// PreviousRevision is the PluginRevision that a failure of the active revision restores: the last one that was
	// active and whose probation was over on all virtual nodes that it is for. While there is none, it is the first
	// one, see PreviousUnproven.
	//
	// +optional
	PreviousRevision string `json:"previousRevision,omitempty"`

	// PreviousUnproven is true if the probation of PreviousRevision was not over when another revision became active.
	// A removal is then held unless the object would also be skipped without the plugin.
	//
	// +optional
	PreviousUnproven bool `json:"previousUnproven,omitempty"`

	// CandidateRevision is a PluginRevision that is accepted, but not active yet.
	//
	// +optional
	CandidateRevision string `json:"candidateRevision,omitempty"`

	// PromotedAt is the time at which the active revision became active. Its probation begins on each virtual node when
	// the virtual node begins to reflect with it: activeSince in the status of the PluginRevision. PromotedAt is not set
	// after a return to PreviousRevision, which has no probation, unless PreviousUnproven was set.
	//
	// +optional
	PromotedAt *metav1.Time `json:"promotedAt,omitempty"`

	// RejectedRevision is the PluginRevision that failed in its probation and was rolled back. It becomes active
	// again only if spec.revision or spec.rollout.rehearsal.approved is set to it after the rollback. It is then not
	// rolled back automatically.
	//
	// +optional
	RejectedRevision string `json:"rejectedRevision,omitempty"`

	// EarlierRejectedRevisions are the revisions that were rolled back before RejectedRevision, latest first. The same
	// rules apply to them, for example if a tag in a registry is moved back to one of them.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	EarlierRejectedRevisions []string `json:"earlierRejectedRevisions,omitempty"`

	// OverruledRevision is the rejected revision while spec.revision or spec.rollout.rehearsal.approved still names
	// it from the time before the rejection. Such a name has no effect. To make the revision active again, remove the
	// name and set it again.
	//
	// +optional
	OverruledRevision string `json:"overruledRevision,omitempty"`

	// Version is the version of the active revision according to its manifest.
	//
	// +optional
	Version string `json:"version,omitempty"`

	// Nodes is the number of virtual nodes that run the active revision, and the number of all virtual nodes: "3/3".
	//
	// +optional
	Nodes string `json:"nodes,omitempty"`

	// Source is the result of resolving the source of the module.
	//
	// +optional
	Source *PluginSourceStatus `json:"source,omitempty"`

	// Conditions are the conditions of the plugin: Fetched, Verified, Accepted, Rehearsed and Ready.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PluginSourceStatus is the result of resolving a source.
type PluginSourceStatus struct {
	// Fingerprint is a hash of spec.source and of the signature policy for it. If it changes, the source is fetched
	// again.
	Fingerprint string `json:"fingerprint"`

	// Resolved is the source of the module. For an image, it includes the digest.
	//
	// +optional
	Resolved string `json:"resolved,omitempty"`

	// SHA256 is the SHA-256 of the module.
	//
	// +optional
	SHA256 string `json:"sha256,omitempty"`

	// Signer is the fingerprint of the public key whose signature of the module was verified.
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
