// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConditionType names an aspect of a foreign cluster.
type ConditionType string

// Aspects of a foreign cluster.
const (
	// APIServerStatusCondition reports whether the API server is available.
	APIServerStatusCondition ConditionType = "APIServerStatus"

	// NetworkStatusCondition reports whether addresses of the other cluster are reachable.
	NetworkStatusCondition ConditionType = "NetworkStatus"

	// NetworkConfigurationStatusCondition reports whether the networks of both sides are known.
	NetworkConfigurationStatusCondition ConditionType = "NetworkConfigurationStatus"
	// NetworkConnectionStatusCondition reports whether the tunnel is up.
	NetworkConnectionStatusCondition ConditionType = "NetworkConnectionStatus"
	// NetworkGatewayPresenceCondition reports whether a gateway exists.
	NetworkGatewayPresenceCondition ConditionType = "NetworkGatewayPresence"
	// NetworkGatewayServerStatusCondition reports whether the server gateway is up.
	NetworkGatewayServerStatusCondition ConditionType = "NetworkGatewayServerStatus"
	// NetworkGatewayClientStatusCondition reports whether the client gateway is up.
	NetworkGatewayClientStatusCondition ConditionType = "NetworkGatewayClientStatus"

	// AuthTenantStatusCondition reports whether the Tenant is accepted.
	AuthTenantStatusCondition ConditionType = "AuthTenantStatus"
	// AuthIdentityControlPlaneStatusCondition reports whether a control plane identity exists.
	AuthIdentityControlPlaneStatusCondition ConditionType = "AuthIdentityControlPlaneStatus"

	// OffloadingVirtualNodeStatusCondition reports whether the virtual kubelets are running.
	OffloadingVirtualNodeStatusCondition ConditionType = "OffloadingVirtualNodeStatus"
	// OffloadingNodeStatusCondition reports whether the virtual nodes are ready.
	OffloadingNodeStatusCondition ConditionType = "OffloadingNodeStatus"
)

// ConditionStatus is the value of a Condition. Unlike conditions of Kubernetes, it can have more than three values.
//
// +kubebuilder:validation:Enum=None;Pending;Established;Error;Ready;NotReady;SomeNotReady
type ConditionStatus string

// Values of a Condition.
const (
	ConditionStatusNone         ConditionStatus = "None"
	ConditionStatusPending      ConditionStatus = "Pending"
	ConditionStatusEstablished  ConditionStatus = "Established"
	ConditionStatusError        ConditionStatus = "Error"
	ConditionStatusReady        ConditionStatus = "Ready"
	ConditionStatusNotReady     ConditionStatus = "NotReady"
	ConditionStatusSomeNotReady ConditionStatus = "SomeNotReady"
)

// Condition is the state of one aspect of a foreign cluster.
type Condition struct {
	// Type is the aspect that the condition describes.
	Type ConditionType `json:"type"`

	// Status is the value of the condition.
	//
	// +kubebuilder:default=None
	Status ConditionStatus `json:"status"`

	// LastTransitionTime is the time of the last change of the status.
	//
	// +optional
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`

	// Reason is a CamelCase word for the last change.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message is a human-readable description of the last change.
	//
	// +optional
	Message string `json:"message,omitempty"`
}

// ConditionOf returns the status of the condition with the type t, or ConditionStatusNone if there is none.
func ConditionOf(conditions []Condition, t ConditionType) ConditionStatus {
	for i := range conditions {
		if conditions[i].Type == t {
			return conditions[i].Status
		}
	}
	return ConditionStatusNone
}
