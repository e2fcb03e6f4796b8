// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CIDR is a range of IPv4 addresses, such as 10.1.0.0/16.
//
// +kubebuilder:validation:Format=cidr
type CIDR string

// IP is an IPv4 address.
//
// +kubebuilder:validation:Format=ipv4
type IP string

// Configuration contains the address ranges of this cluster and of a peer. Its status contains the local ranges that replace the ranges
// of the peer.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=conf,categories=liqo
// +kubebuilder:printcolumn:name="Desired Pod CIDR",type=string,JSONPath=`.spec.remote.cidr.pod`
// +kubebuilder:printcolumn:name="Remapped Pod CIDR",type=string,JSONPath=`.status.remote.cidr.pod`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Desired External CIDR",type=string,priority=1,JSONPath=`.spec.remote.cidr.external`
// +kubebuilder:printcolumn:name="Remapped External CIDR",type=string,priority=1,JSONPath=`.status.remote.cidr.external`
// +kubebuilder:printcolumn:name="ClusterID",type=string,priority=1,JSONPath=`.metadata.labels.liqo\.io/remote-cluster-id`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="NetworkCIDRsConfigured")].message`
type Configuration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ConfigurationSpec `json:"spec,omitempty"`
	// +optional
	Status ConfigurationStatus `json:"status,omitempty"`
}

// ConfigurationList is a list of Configurations.
//
// +kubebuilder:object:root=true
type ConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Configuration `json:"items"`
}

// ConfigurationSpec contains the true ranges of both clusters.
type ConfigurationSpec struct {
	// Local contains the ranges of this cluster. The controller manager sets them if they are empty.
	//
	// +optional
	Local *ClusterConfig `json:"local,omitempty"`

	// Remote contains the ranges that the peer itself uses.
	//
	// +optional
	Remote ClusterConfig `json:"remote,omitempty"`
}

// ClusterConfig contains the ranges of one cluster.
type ClusterConfig struct {
	// CIDR contains the ranges by their use.
	//
	// +optional
	CIDR ClusterConfigCIDR `json:"cidr,omitempty"`
}

// ClusterConfigCIDR contains the ranges of one cluster by their use.
type ClusterConfigCIDR struct {
	// Pod contains the ranges of the pods.
	//
	// +optional
	Pod []CIDR `json:"pod,omitempty"`

	// External contains the ranges of addresses for hosts of the cluster that are not pods.
	//
	// +optional
	External []CIDR `json:"external,omitempty"`
}

// ConfiguredCondition reports whether all ranges of the peer have a local range.
const ConfiguredCondition = "NetworkCIDRsConfigured"

// ConfigurationStatus contains the local ranges of the peer.
type ConfigurationStatus struct {
	// Remote contains the local ranges that replace the ranges of the spec at the same index. A range that is the same
	// in both is not translated.
	//
	// +optional
	Remote *ClusterConfig `json:"remote,omitempty"`

	// Conditions are the conditions of the ranges.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
