// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PeerNetwork describes the network between the pods of this cluster and the pods of a peer. It is in the tenant
// namespace of the peer and has the name of the peer. The spec is written when the clusters are joined. The network
// provider reports in the status whether the network is up.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=pnet,categories=refract
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Local",type=string,JSONPath=`.spec.local.podCIDRs`
// +kubebuilder:printcolumn:name="Remote",type=string,JSONPath=`.spec.remote.podCIDRs`
// +kubebuilder:printcolumn:name="Connected",type=string,JSONPath=`.status.conditions[?(@.type=="Connected")].status`
// +kubebuilder:printcolumn:name="Message",type=string,priority=10,JSONPath=`.status.conditions[?(@.type=="Connected")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.clusterID",message="a PeerNetwork must be named after the cluster that it leads to, spec.clusterID: there is one per peer"
type PeerNetwork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec describes the network.
	Spec PeerNetworkSpec `json:"spec"`
	// +optional
	Status PeerNetworkStatus `json:"status,omitempty"`
}

// PeerNetworkList is a list of PeerNetworks.
//
// +kubebuilder:object:root=true
type PeerNetworkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PeerNetwork `json:"items"`
}

// NetworkMode is the kind of network between the pods of two clusters.
//
// +kubebuilder:validation:Enum=Reachable;None;Gateway
type NetworkMode string

// Network modes.
const (
	// ReachableNetwork means that pods reach each other directly, through a network that is not part of Refract.
	ReachableNetwork NetworkMode = "Reachable"
	// NoNetwork means that pods cannot reach each other, and that no addresses are shown.
	NoNetwork NetworkMode = "None"
	// GatewayNetwork means that gateways in both clusters connect the networks with a tunnel. The condition Connected then
	// follows the Connections of the gateways, unless a network provider has written it.
	GatewayNetwork NetworkMode = "Gateway"
)

// PeerNetworkSpec describes the network.
type PeerNetworkSpec struct {
	// ClusterID is the ID of the peer.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ClusterID string `json:"clusterID"`

	// Mode is the kind of network.
	//
	// +kubebuilder:default=Reachable
	// +optional
	Mode NetworkMode `json:"mode,omitempty"`

	// Local describes this cluster's side of the network.
	//
	// +kubebuilder:default={}
	// +optional
	Local NetworkSide `json:"local,omitempty"`

	// Remote describes the peer's side of the network.
	//
	// +kubebuilder:default={}
	// +optional
	Remote NetworkSide `json:"remote,omitempty"`
}

// CIDR is a range of IPv4 or IPv6 addresses.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="not an address range: use CIDR notation, such as 10.1.0.0/16"
type CIDR string

// NetworkSide describes the network of one of the two clusters.
type NetworkSide struct {
	// PodCIDRs are the address ranges of the cluster's pods.
	//
	// +kubebuilder:validation:MaxItems=16
	// +listType=set
	// +optional
	PodCIDRs []CIDR `json:"podCIDRs,omitempty"`
}

// ConnectedCondition is the type of the condition in which the network provider reports whether pods reach each
// other: True, False, or Unknown while the network is being set up.
const ConnectedCondition = "Connected"

// PeerNetworkStatus is the state of the network.
type PeerNetworkStatus struct {
	// Conditions are the conditions of the network.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// CheckedAt is the time of the last check of the condition Connected. If it does not change for a minute, the condition
	// counts as False. If it is not set, the condition is valid until it changes.
	//
	// +optional
	CheckedAt *metav1.Time `json:"checkedAt,omitempty"`
}
