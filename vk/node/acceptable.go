// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
)

// withoutInvalid returns a copy of the VirtualNode that contains only the labels, annotations, taints and resources
// that are valid in a Node. It also describes the omitted entries, in a stable order. Invalid entries must be omitted,
// because the API server rejects the whole Node: a single malformed label would prevent all updates, including updates
// of readiness.
func withoutInvalid(vn *offloadingv1beta1.VirtualNode) (*offloadingv1beta1.VirtualNode, []string) {
	var problems []string
	leaveOut := func(field, entry string, faults []string) bool {
		if len(faults) == 0 {
			return false
		}
		problems = append(problems, fmt.Sprintf("%s: ignored %s: %s", field, entry, strings.Join(faults, "; ")))
		return true
	}
	kept := vn.DeepCopy()
	for _, key := range slices.Sorted(maps.Keys(vn.Spec.Labels)) {
		value := vn.Spec.Labels[key]
		if leaveOut("spec.labels", fmt.Sprintf("%q=%q", key, value), labelFaults(key, value)) {
			delete(kept.Spec.Labels, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(vn.Spec.Annotations)) {
		if leaveOut("spec.annotations", fmt.Sprintf("%q", key), validation.IsQualifiedName(strings.ToLower(key))) {
			delete(kept.Spec.Annotations, key)
		}
	}
	kept.Spec.Taints = slices.DeleteFunc(kept.Spec.Taints, func(t corev1.Taint) bool {
		return leaveOut("spec.taints", fmt.Sprintf("%q", t.ToString()), taintFaults(&t))
	})
	hard := kept.Spec.ResourceQuota.Hard
	for _, name := range slices.Sorted(maps.Keys(hard)) {
		quantity := hard[name]
		if leaveOut("spec.resourceQuota.hard", fmt.Sprintf("%q: %q", name, quantity.String()), quantityFaults(name, quantity)) {
			delete(hard, name)
		}
	}
	return kept, problems
}

func labelFaults(key, value string) []string {
	return append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
}

func taintFaults(t *corev1.Taint) []string {
	faults := labelFaults(t.Key, t.Value)
	switch t.Effect {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
	default:
		faults = append(faults, fmt.Sprintf("its effect must be %s, %s or %s",
			corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute))
	}
	return faults
}

func quantityFaults(name corev1.ResourceName, quantity resource.Quantity) []string {
	countable := name == corev1.ResourcePods || strings.Contains(string(name), "/")
	switch {
	case quantity.Sign() < 0:
		return []string{"it must not be negative"}
	case countable && quantity.MilliValue()%1000 != 0:
		return []string{"it must be a whole number"}
	}
	return nil
}
