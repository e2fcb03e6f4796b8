// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConditionType names an aspect of a foreign cluster.
type ConditionType string

// The aspects of a foreign cluster.
const (
	// APIServerStatusCondition: whether the API server is available.
	APIServerStatusCondition ConditionType = "APIServerStatus"

	// NetworkStatusCondition reports whether addresses of the other cluster are reachable.
	NetworkStatusCondition ConditionType = "NetworkStatus"

	// NetworkConfigurationStatusCondition: whether the networks of both sides are known.
	NetworkConfigurationStatusCondition ConditionType = "NetworkConfigurationStatus"
	// NetworkConnectionStatusCondition: whether the tunnel is up.
	NetworkConnectionStatusCondition ConditionType = "NetworkConnectionStatus"
	// NetworkGatewayPresenceCondition: whether there is a gateway.
	NetworkGatewayPresenceCondition ConditionType = "NetworkGatewayPresence"
	// NetworkGatewayServerStatusCondition: whether the server gateway is up.
	NetworkGatewayServerStatusCondition ConditionType = "NetworkGatewayServerStatus"
	// NetworkGatewayClientStatusCondition: whether the client gateway is up.
	NetworkGatewayClientStatusCondition ConditionType = "NetworkGatewayClientStatus"

	// AuthTenantStatusCondition: whether the tenant is accepted.
	AuthTenantStatusCondition ConditionType = "AuthTenantStatus"
	// AuthIdentityControlPlaneStatusCondition: whether there is a control-plane identity.
	AuthIdentityControlPlaneStatusCondition ConditionType = "AuthIdentityControlPlaneStatus"

	// OffloadingVirtualNodeStatusCondition: whether the virtual kubelets run.
	OffloadingVirtualNodeStatusCondition ConditionType = "OffloadingVirtualNodeStatus"
	// OffloadingNodeStatusCondition: whether the virtual nodes are Ready.
	OffloadingNodeStatusCondition ConditionType = "OffloadingNodeStatus"
)

// ConditionStatus is the value of a Condition. It is not the three-valued one
// of Kubernetes.
//
// +kubebuilder:validation:Enum=None;Pending;Established;Error;Ready;NotReady;SomeNotReady
type ConditionStatus string

// The values of a Condition.
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
	// Type of the condition.
	Type ConditionType `json:"type"`

	// Status of the condition.
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

// ConditionOf returns the status of the condition of type t, and
// ConditionStatusNone when there is none.
func ConditionOf(conditions []Condition, t ConditionType) ConditionStatus {
	for i := range conditions {
		if conditions[i].Type == t {
			return conditions[i].Status
		}
	}
	return ConditionStatusNone
}
