// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/folderplugins"
	"github.com/refract-project/refract/internal/printable"
)

// network is the state of the network between the clusters, as far as it is relevant for the node.
type network int

const (
	// networkIgnored means that the network is not checked, or that the cluster has no network module. The node then
	// gets no network condition.
	networkIgnored network = iota
	networkUp
	networkDown
)

// networkOf returns the network state in a ForeignCluster. fc is nil if the provider has no ForeignCluster. In this
// case, the state of the network is unknown, and no network is required.
//
// Until a controller has reconciled the ForeignCluster (its observed generation is 0), the network module counts as
// enabled, as in Liqo's network check of virtual nodes.
func networkOf(fc *corev1beta1.ForeignCluster) network {
	if fc == nil {
		return networkIgnored
	}
	switch corev1beta1.ConditionOf(fc.Status.Conditions, corev1beta1.NetworkStatusCondition) {
	// The state was not checked, or the network module reports it in another condition.
	case corev1beta1.ConditionStatusNone:
	case corev1beta1.ConditionStatusEstablished:
		return networkUp
	default:
		return networkDown
	}
	module := &fc.Status.Modules.Networking
	if fc.Status.ObservedGeneration > 0 && !module.Enabled {
		return networkIgnored
	}
	if corev1beta1.ConditionOf(module.Conditions, corev1beta1.NetworkConnectionStatusCondition) == corev1beta1.ConditionStatusEstablished {
		return networkUp
	}
	return networkDown
}

// health is the state of the provider and of the plugins for its objects, as observed by this process.
type health struct {
	// unreachable describes why the provider's API server counts as unreachable. The text is the end of a sentence. It
	// is empty if the API server is reachable.
	unreachable string
	network     network
	// folder contains the plugins in the folder of this virtual kubelet.
	folder []folderplugins.Plugin
}

// nodeConditions returns the conditions of a node with the given allocatable resources. A condition whose status did
// not change keeps its transition time from previous.
func (h *health) nodeConditions(allocatable corev1.ResourceList, previous []corev1.NodeCondition, now metav1.Time) []corev1.NodeCondition {
	resources := isPositive(allocatable, corev1.ResourceCPU) && isPositive(allocatable, corev1.ResourceMemory)
	problems := h.readinessProblems(resources)
	all := []corev1.NodeCondition{
		chooseCondition(len(problems) == 0, corev1.NodeReady,
			outcome{corev1.ConditionTrue, wire.NodeReadyReason, "The provider's API server answers"},
			outcome{corev1.ConditionFalse, wire.NodeNotReadyReason, strings.Join(problems, "; ")}),
		chooseCondition(resources, corev1.NodeMemoryPressure,
			outcome{corev1.ConditionFalse, wire.NodeSufficientMemoryReason, "The provider offers CPU and memory"},
			outcome{corev1.ConditionTrue, wire.NodeMemoryPressureReason, noResources}),
		chooseCondition(resources, corev1.NodeDiskPressure,
			outcome{corev1.ConditionFalse, wire.NodeNoDiskPressureReason, "The provider offers CPU and memory"},
			outcome{corev1.ConditionTrue, wire.NodeDiskPressureReason, noResources}),
		chooseCondition(resources, corev1.NodePIDPressure,
			outcome{corev1.ConditionFalse, wire.NodeNoPIDPressureReason, "The provider offers CPU and memory"},
			outcome{corev1.ConditionTrue, wire.NodePIDPressureReason, noResources}),
	}
	if h.network != networkIgnored {
		all = append(all, chooseCondition(h.network == networkUp, corev1.NodeNetworkUnavailable,
			outcome{corev1.ConditionFalse, wire.NodeNetworkUpReason, "The network between the clusters is up"},
			outcome{corev1.ConditionTrue, wire.NodeNetworkDownReason, networkIsDown}))
	}
	if plugins := folderplugins.NewCondition(h.folder); plugins != nil {
		all = append(all, *plugins)
	}
	for i := range all {
		all[i].LastTransitionTime = transitionTime(&all[i], previous, now)
		all[i].LastHeartbeatTime = now
	}
	return all
}

const (
	noResources   = "The VirtualNode offers no CPU or no memory: set spec.resourceQuota.hard"
	networkIsDown = "The network between the clusters is down: see the networking conditions of the ForeignCluster"
)

// readinessProblems returns descriptions of the problems that prevent the node from being ready.
func (h *health) readinessProblems(resources bool) []string {
	var found []string
	if h.unreachable != "" {
		found = append(found, "The provider's API server "+h.unreachable)
	}
	if !resources {
		found = append(found, noResources)
	}
	if h.network == networkDown {
		found = append(found, networkIsDown)
	}
	return found
}

func isPositive(list corev1.ResourceList, name corev1.ResourceName) bool {
	quantity := list[name]
	return quantity.Sign() > 0
}

type outcome struct {
	status          corev1.ConditionStatus
	reason, message string
}

func chooseCondition(good bool, kind corev1.NodeConditionType, yes, no outcome) corev1.NodeCondition {
	chosen := no
	if good {
		chosen = yes
	}
	return corev1.NodeCondition{Type: kind, Status: chosen.status, Reason: chosen.reason, Message: printable.Message(chosen.message)}
}

// transitionTime returns the time at which the status of a condition has last changed. If the condition has the same
// status in previous, this is the time in previous, and otherwise it is now.
func transitionTime(condition *corev1.NodeCondition, previous []corev1.NodeCondition, now metav1.Time) metav1.Time {
	if old := conditionOf(previous, condition.Type); old != nil && old.Status == condition.Status && !old.LastTransitionTime.IsZero() {
		return old.LastTransitionTime
	}
	return now
}

// conditionOf returns the condition of the given type, or nil if the list does not contain it.
func conditionOf(list []corev1.NodeCondition, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range list {
		if list[i].Type == kind {
			return &list[i]
		}
	}
	return nil
}

// networkReasons are the reasons of the condition NetworkUnavailable that only a virtual kubelet sets.
var networkReasons = []string{wire.NodeNetworkUpReason, wire.NodeNetworkDownReason}
