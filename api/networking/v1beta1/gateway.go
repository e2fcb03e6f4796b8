// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GatewayServer is the end of a tunnel that waits for the other one, a GatewayClient of the peer.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=gws;gwserver,categories=liqo
// +kubebuilder:printcolumn:name="Template Kind",type=string,priority=1,JSONPath=`.spec.serverTemplateRef.kind`
// +kubebuilder:printcolumn:name="Template Name",type=string,JSONPath=`.spec.serverTemplateRef.name`
// +kubebuilder:printcolumn:name="Template Namespace",type=string,priority=1,JSONPath=`.spec.serverTemplateRef.namespace`
// +kubebuilder:printcolumn:name="IP",type=string,JSONPath=`.status.endpoint.addresses[*]`
// +kubebuilder:printcolumn:name="Port",type=string,JSONPath=`.status.endpoint.port`
// +kubebuilder:printcolumn:name="Protocol",type=string,priority=1,JSONPath=`.status.endpoint.protocol`
// +kubebuilder:printcolumn:name="MTU",type=integer,priority=1,JSONPath=`.spec.mtu`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GatewayServer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec GatewayServerSpec `json:"spec,omitempty"`
	// +optional
	Status GatewayServerStatus `json:"status,omitempty"`
}

// GatewayServerList is a list of GatewayServers.
//
// +kubebuilder:object:root=true
type GatewayServerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GatewayServer `json:"items"`
}

// GatewayServerSpec defines the address and the keys of the gateway.
type GatewayServerSpec struct {
	// ServerTemplateRef names the template of the gateway, which also decides whose controllers run it.
	//
	// +optional
	ServerTemplateRef corev1.ObjectReference `json:"serverTemplateRef,omitempty"`

	// MTU is the MTU of the tunnel, in bytes.
	//
	// +optional
	MTU int `json:"mtu,omitempty"`

	// Endpoint is the Service in front of the gateway.
	//
	// +optional
	Endpoint Endpoint `json:"endpoint,omitempty"`

	// SecretRef names the Secret with the keys. If it is empty, keys are generated.
	//
	// +optional
	SecretRef corev1.LocalObjectReference `json:"secretRef,omitempty"`
}

// Endpoint is the Service in front of a gateway.
type Endpoint struct {
	// Port is the UDP port of the gateway.
	//
	// +optional
	Port int32 `json:"port,omitempty"`

	// ServiceType is the type of the Service.
	//
	// +kubebuilder:default=ClusterIP
	// +kubebuilder:validation:Enum=ClusterIP;NodePort;LoadBalancer;ExternalName
	// +optional
	ServiceType corev1.ServiceType `json:"serviceType,omitempty"`

	// NodePort is the node port of the Service. If it is empty, Kubernetes chooses one.
	//
	// +optional
	NodePort *int32 `json:"nodePort,omitempty"`

	// LoadBalancerIP is the requested address of the load balancer.
	//
	// +optional
	LoadBalancerIP *string `json:"loadBalancerIP,omitempty"`
}

// GatewayServerStatus is the state of the gateway.
type GatewayServerStatus struct {
	// ServerRef names the object that runs the gateway.
	//
	// +optional
	ServerRef *corev1.ObjectReference `json:"serverRef,omitempty"`

	// Endpoint is the endpoint at which the peer reaches the gateway.
	//
	// +optional
	Endpoint *EndpointStatus `json:"endpoint,omitempty"`

	// SecretRef names the Secret with the keys.
	//
	// +optional
	SecretRef *corev1.ObjectReference `json:"secretRef,omitempty"`

	// InternalEndpoint is the endpoint at which the nodes of this cluster reach the gateway.
	//
	// +optional
	InternalEndpoint *InternalGatewayEndpoint `json:"internalEndpoint,omitempty"`
}

// EndpointStatus is the endpoint at which a gateway is reached from outside its cluster.
type EndpointStatus struct {
	// Addresses are the addresses or host names of the gateway, the best one first.
	//
	// +optional
	Addresses []string `json:"addresses,omitempty"`

	// Port is the port at each of the addresses.
	//
	// +optional
	Port int32 `json:"port,omitempty"`

	// Protocol is the protocol of the port.
	//
	// +kubebuilder:validation:Enum=TCP;UDP
	// +optional
	Protocol *corev1.Protocol `json:"protocol,omitempty"`
}

// InternalGatewayEndpoint is the endpoint at which the nodes of its own cluster reach a gateway.
type InternalGatewayEndpoint struct {
	// IP is the address of the gateway's pod.
	//
	// +optional
	IP *IP `json:"ip,omitempty"`

	// Node is the name of the pod's node.
	//
	// +optional
	Node *string `json:"node,omitempty"`
}

// GatewayClient is the end of a tunnel that starts the connection to the other one, a GatewayServer of the peer.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=gwc;gwclient,categories=liqo
// +kubebuilder:printcolumn:name="Template Kind",type=string,priority=1,JSONPath=`.spec.clientTemplateRef.kind`
// +kubebuilder:printcolumn:name="Template Name",type=string,JSONPath=`.spec.clientTemplateRef.name`
// +kubebuilder:printcolumn:name="Template Namespace",type=string,priority=1,JSONPath=`.spec.clientTemplateRef.namespace`
// +kubebuilder:printcolumn:name="IP",type=string,JSONPath=`.spec.endpoint.addresses[*]`
// +kubebuilder:printcolumn:name="Port",type=string,JSONPath=`.spec.endpoint.port`
// +kubebuilder:printcolumn:name="Protocol",type=string,priority=1,JSONPath=`.spec.endpoint.protocol`
// +kubebuilder:printcolumn:name="MTU",type=integer,priority=1,JSONPath=`.spec.mtu`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GatewayClient struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec GatewayClientSpec `json:"spec,omitempty"`
	// +optional
	Status GatewayClientStatus `json:"status,omitempty"`
}

// GatewayClientList is a list of GatewayClients.
//
// +kubebuilder:object:root=true
type GatewayClientList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GatewayClient `json:"items"`
}

// GatewayClientSpec defines the address of the peer's gateway, and the keys of this gateway.
type GatewayClientSpec struct {
	// ClientTemplateRef names the template of the gateway, which also decides whose controllers run it.
	//
	// +optional
	ClientTemplateRef corev1.ObjectReference `json:"clientTemplateRef,omitempty"`

	// MTU is the MTU of the tunnel, in bytes.
	//
	// +optional
	MTU int `json:"mtu,omitempty"`

	// Endpoint is the endpoint of the peer's gateway.
	//
	// +optional
	Endpoint EndpointStatus `json:"endpoint,omitempty"`

	// SecretRef names the Secret with the keys. If it is empty, keys are generated.
	//
	// +optional
	SecretRef corev1.LocalObjectReference `json:"secretRef,omitempty"`
}

// GatewayClientStatus is the state of the gateway.
type GatewayClientStatus struct {
	// ClientRef names the object that runs the gateway.
	//
	// +optional
	ClientRef *corev1.ObjectReference `json:"clientRef,omitempty"`

	// SecretRef names the Secret with the keys.
	//
	// +optional
	SecretRef *corev1.ObjectReference `json:"secretRef,omitempty"`

	// InternalEndpoint is the endpoint at which the nodes of this cluster reach the gateway.
	//
	// +optional
	InternalEndpoint *InternalGatewayEndpoint `json:"internalEndpoint,omitempty"`
}
