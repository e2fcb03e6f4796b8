// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Connection reports whether the tunnel of a gateway is up.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=conn,categories=liqo
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.value`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Latency",type=string,priority=1,JSONPath=`.status.latency.value`
type Connection struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec ConnectionSpec `json:"spec,omitempty"`
	// +optional
	Status ConnectionStatus `json:"status,omitempty"`
}

// ConnectionList is a list of Connections.
//
// +kubebuilder:object:root=true
type ConnectionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Connection `json:"items"`
}

// ConnectionType is the end of the tunnel at this cluster.
//
// +kubebuilder:validation:Enum=Server;Client
type ConnectionType string

// The ends of a tunnel.
const (
	// ServerConnection is the end that waits for the other one to connect.
	ServerConnection ConnectionType = "Server"
	// ClientConnection is the end that starts the connection.
	ClientConnection ConnectionType = "Client"
)

// ConnectionSpec names the gateway.
type ConnectionSpec struct {
	// Type is the end of the tunnel at this cluster.
	Type ConnectionType `json:"type"`

	// GatewayRef names the gateway.
	GatewayRef corev1.ObjectReference `json:"gatewayRef"`
}

// ConnectionValue is the state of a tunnel.
type ConnectionValue string

// The states of a tunnel.
const (
	// Connected means that the other end responds.
	Connected ConnectionValue = "Connected"
	// Connecting means that the other end has not responded yet.
	Connecting ConnectionValue = "Connecting"
	// ConnectionFailed means that the other end no longer responds.
	ConnectionFailed ConnectionValue = "Error"
)

// ConnectionStatus is the state of the tunnel.
type ConnectionStatus struct {
	// Value is Connected, Connecting or Error.
	//
	// +optional
	Value ConnectionValue `json:"value,omitempty"`

	// Latency is the latency of the tunnel.
	//
	// +optional
	Latency ConnectionLatency `json:"latency,omitempty"`
}

// ConnectionLatency is a measured round-trip time.
type ConnectionLatency struct {
	// Value is the time with its unit, such as 12ms.
	//
	// +optional
	Value string `json:"value,omitempty"`

	// Timestamp is the time of the measurement.
	//
	// +optional
	Timestamp metav1.Time `json:"timestamp,omitempty"`
}
