// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/refract-project/refract/internal/folderplugins"
)

// hasDrifted reports whether the metadata or status of a Node differs from desired. Entries that other clients have
// added do not count. Taints are compared separately (see mergeTaints).
func hasDrifted(actual, desired *corev1.Node) bool {
	have, want := &actual.Status, &desired.Status
	return !containsEntries(actual.Labels, desired.Labels) ||
		!containsEntries(actual.Annotations, desired.Annotations) ||
		!hasResources(have.Capacity, want.Capacity) ||
		!hasResources(have.Allocatable, want.Allocatable) ||
		!equality.Semantic.DeepEqual(have.Addresses, want.Addresses) ||
		have.DaemonEndpoints != want.DaemonEndpoints ||
		!sameNodeInfo(&have.NodeInfo, &want.NodeInfo) ||
		!equality.Semantic.DeepEqual(have.Images, want.Images) ||
		!hasConditions(have.Conditions, want.Conditions) ||
		hasLeftovers(actual, desired)
}

// containsEntries reports whether the map have contains all entries of the map want.
func containsEntries(have, want map[string]string) bool {
	for key, value := range want {
		if found, ok := have[key]; !ok || found != value {
			return false
		}
	}
	return true
}

// hasResources reports whether the list have contains the quantities in want. Different notations of a quantity are
// equal, such as 1000m and 1.
func hasResources(have, want corev1.ResourceList) bool {
	for name, quantity := range want {
		if found, ok := have[name]; !ok || found.Cmp(quantity) != 0 {
			return false
		}
	}
	return true
}

func sameNodeInfo(have, want *corev1.NodeSystemInfo) bool {
	return have.KubeletVersion == want.KubeletVersion &&
		have.OperatingSystem == want.OperatingSystem &&
		have.Architecture == want.Architecture
}

// hasConditions compares the contents of conditions, but not their times. A condition FolderPluginsLoaded, or a
// condition NetworkUnavailable that a virtual kubelet has set, counts as a difference if it is not desired.
func hasConditions(have, want []corev1.NodeCondition) bool {
	for i := range want {
		found := conditionOf(have, want[i].Type)
		if found == nil || found.Status != want[i].Status || found.Reason != want[i].Reason || found.Message != want[i].Message {
			return false
		}
	}
	if conditionOf(want, folderplugins.ConditionType) == nil && conditionOf(have, folderplugins.ConditionType) != nil {
		return false
	}
	return conditionOf(want, corev1.NodeNetworkUnavailable) != nil || !ownNetworkCondition(have)
}

// ownNetworkCondition reports whether the condition NetworkUnavailable was set by a virtual kubelet. Network plugins
// and cloud controllers also set this condition.
func ownNetworkCondition(list []corev1.NodeCondition) bool {
	found := conditionOf(list, corev1.NodeNetworkUnavailable)
	return found != nil && slices.Contains(networkReasons, found.Reason)
}
