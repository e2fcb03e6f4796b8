// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PeerNetwork describes the network between the pods of this cluster and those of a peer. It is in the tenant namespace of the peer, and named
// after it. The spec is written when clusters are joined; the network provider reports in the status whether the network is up.
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

// The network modes.
const (
	// ReachableNetwork: pods reach each other by their addresses, across a network that is not part of Refract.
	ReachableNetwork NetworkMode = "Reachable"
	// NoNetwork: pods do not reach each other, and no addresses are shown.
	NoNetwork NetworkMode = "None"
	// GatewayNetwork: gateways of both clusters connect them with a tunnel.
	GatewayNetwork NetworkMode = "Gateway"
)

// PeerNetworkSpec describes the network.
//
// +kubebuilder:validation:XValidation:rule="self.mode == 'Gateway' || !has(self.remaps) && !has(self.local.gateway) && !has(self.remote.gateway)",message="remaps and gateways are for the mode Gateway"
type PeerNetworkSpec struct {
	// ClusterID of the peer.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	ClusterID string `json:"clusterID"`

	// Mode is the kind of network.
	//
	// +kubebuilder:default=Reachable
	// +optional
	Mode NetworkMode `json:"mode,omitempty"`

	// Local is this cluster's side.
	//
	// +kubebuilder:default={}
	// +optional
	Local NetworkSide `json:"local,omitempty"`

	// Remote is the peer's side.
	//
	// +kubebuilder:default={}
	// +optional
	Remote NetworkSide `json:"remote,omitempty"`

	// Remaps are ranges of the peer that this cluster reaches by other addresses, because they overlap with its own ranges.
	//
	// +kubebuilder:validation:MaxItems=16
	// +listType=map
	// +listMapKey=cidr
	// +optional
	Remaps []Remap `json:"remaps,omitempty"`
}

// CIDR is a range of addresses, of either family.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="not an address range: use CIDR notation, such as 10.1.0.0/16"
type CIDR string

// NetworkSide is one of the two clusters.
type NetworkSide struct {
	// PodCIDRs are the ranges of its pods.
	//
	// +kubebuilder:validation:MaxItems=16
	// +listType=set
	// +optional
	PodCIDRs []CIDR `json:"podCIDRs,omitempty"`

	// ServiceCIDRs are the ranges of its Services.
	//
	// +kubebuilder:validation:MaxItems=16
	// +listType=set
	// +optional
	ServiceCIDRs []CIDR `json:"serviceCIDRs,omitempty"`

	// Gateway of the cluster.
	//
	// +optional
	Gateway *Gateway `json:"gateway,omitempty"`
}

// Gateway is an endpoint of a tunnel. The private key is in a Secret of its cluster.
type Gateway struct {
	// PublicKey of the gateway, in base64 (WireGuard: 32 bytes of Curve25519).
	//
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{43}=$`
	PublicKey string `json:"publicKey"`

	// Endpoints of the gateway, as host:port, the best one first. Empty if it is behind NAT and initiates the connection.
	//
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=261
	// +listType=atomic
	// +optional
	Endpoints []string `json:"endpoints,omitempty"`
}

// Remap maps a range to another one of the same size.
type Remap struct {
	// CIDR in the peer.
	CIDR CIDR `json:"cidr"`
	// As is the range by which this cluster reaches it.
	As CIDR `json:"as"`
}

// ConnectedCondition reports whether pods reach each other, according to the network provider: True, False, or Unknown while it is
// being set up.
const ConnectedCondition = "Connected"

// PeerNetworkStatus is the state of the network.
type PeerNetworkStatus struct {
	// Conditions of the network.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// CheckedAt is the time of the last check of the condition Connected. If it is older than a minute, the condition counts as False; without this
	// time the condition is valid until it changes.
	//
	// +optional
	CheckedAt *metav1.Time `json:"checkedAt,omitempty"`
}
