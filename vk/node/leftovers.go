// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Annotations of the Node where the virtual-kubelet library records its last write. Its next write removes recorded
// entries that are no longer desired.
const (
	lastMetaAnnotation   = "virtual-kubelet.io/last-applied-object-meta"
	lastStatusAnnotation = "virtual-kubelet.io/last-applied-node-status"
)

// written contains the entries of the library's last write that the library can remove.
type written struct {
	labels, annotations   map[string]string
	capacity, allocatable corev1.ResourceList
}

// lastWritten reads the library's last write from the annotations of the Node. spoiled lists the annotations that
// another client has corrupted. As long as such annotations exist, the library cannot update the Node.
func lastWritten(node *corev1.Node) (last written, spoiled []string) {
	var meta struct {
		Labels, Annotations map[string]string
	}
	var status struct {
		Capacity, Allocatable corev1.ResourceList
	}
	for annotation, into := range map[string]any{lastMetaAnnotation: &meta, lastStatusAnnotation: &status} {
		if text, found := node.Annotations[annotation]; found && json.Unmarshal([]byte(text), into) != nil {
			spoiled = append(spoiled, annotation)
		}
	}
	slices.Sort(spoiled)
	return written{meta.Labels, meta.Annotations, status.Capacity, status.Allocatable}, spoiled
}

// hasLeftovers reports whether actual still contains an entry that the library has written and that is no longer
// desired.
func hasLeftovers(actual, desired *corev1.Node) bool {
	last, _ := lastWritten(actual)
	return hasLeftover(last.labels, desired.Labels, actual.Labels) ||
		hasLeftover(last.annotations, desired.Annotations, actual.Annotations) ||
		hasLeftover(last.capacity, desired.Status.Capacity, actual.Status.Capacity) ||
		hasLeftover(last.allocatable, desired.Status.Allocatable, actual.Status.Allocatable)
}

// hasLeftover reports whether a key of last still exists in actual although it is not in desired.
func hasLeftover[K comparable, V any](last, desired, actual map[K]V) bool {
	for key := range last {
		_, isDesired := desired[key]
		if _, there := actual[key]; there && !isDesired {
			return true
		}
	}
	return false
}

// forgetPatch returns a merge patch that removes annotations.
func forgetPatch(annotations []string) ([]byte, error) {
	gone := map[string]any{}
	for _, annotation := range annotations {
		gone[annotation] = nil
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"annotations": gone}})
}
