// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
)

// appliedTaintsAnnotation records on the Node which taints this controller has set. If a taint is removed from the
// VirtualNode, it is also removed from the Node, while taints of the node lifecycle controller and of administrators
// are kept.
const appliedTaintsAnnotation = "plugins.refract.io/applied-taints"

// mergeTaints returns the desired taints and the desired annotation of the node. changed reports whether they differ
// from the current taints and annotation.
func mergeTaints(node *corev1.Node, ours []corev1.Taint) (taints []corev1.Taint, applied string, changed bool) {
	former := decodeTaints(node.Annotations[appliedTaintsAnnotation])
	taints = append(taints, ours...)
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if !hasTaint(former, taint) && !hasTaint(ours, taint) {
			taints = append(taints, *taint)
		}
	}
	applied = encodeTaints(ours)
	changed = applied != node.Annotations[appliedTaintsAnnotation] || !sameTaints(taints, node.Spec.Taints)
	return taints, applied, changed
}

// sameTaints reports whether two lists contain the same taints. It ignores their order and the times at which they were
// added.
func sameTaints(a, b []corev1.Taint) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		found := false
		for j := range b {
			found = found || (a[i].MatchTaint(&b[j]) && a[i].Value == b[j].Value)
		}
		if !found {
			return false
		}
	}
	return true
}

// encodeTaints encodes the key, value and effect of each taint as JSON.
func encodeTaints(taints []corev1.Taint) string {
	bare := make([]corev1.Taint, 0, len(taints))
	for i := range taints {
		bare = append(bare, corev1.Taint{Key: taints[i].Key, Value: taints[i].Value, Effect: taints[i].Effect})
	}
	encoded, err := json.Marshal(bare)
	if err != nil {
		panic(err) // a list of strings can always be encoded
	}
	return string(encoded)
}

// decodeTaints decodes the annotation. An invalid annotation counts as empty. The worst consequence is that a taint is
// not removed.
func decodeTaints(annotation string) []corev1.Taint {
	var taints []corev1.Taint
	if json.Unmarshal([]byte(annotation), &taints) != nil {
		return nil
	}
	return taints
}

// taintPatch returns a merge patch for the taints. The patch replaces the whole list of taints, so it fails if the node
// has changed since it was read.
func taintPatch(node *corev1.Node, taints []corev1.Taint, applied string) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{
			"resourceVersion": node.ResourceVersion,
			"annotations":     map[string]string{appliedTaintsAnnotation: applied},
		},
		"spec": map[string]any{"taints": taints},
	})
}

// withAppliedTaints returns a copy of node for its creation, with the annotation that records its taints.
func withAppliedTaints(node *corev1.Node) *corev1.Node {
	created := node.DeepCopy()
	created.Annotations[appliedTaintsAnnotation] = encodeTaints(node.Spec.Taints)
	return created
}
