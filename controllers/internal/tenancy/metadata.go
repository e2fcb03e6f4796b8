// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/refract-project/refract/internal/tenantlimits"
)

// checkMetadata returns a Refusal if a consumer's object must not have one of these labels or annotations.
func checkMetadata(limits tenantlimits.Limits, labels, annotations map[string]string) *Refusal {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if limits.DeniesLabel(key) {
			return deniedMetadata("labels", key, tenantlimits.AllowedLabels)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if limits.DeniesAnnotation(key) {
			return deniedMetadata("annotations", key, tenantlimits.AllowedAnnotations)
		}
	}
	return nil
}

func deniedMetadata(field, key string, allow *tenantlimits.Setting) *Refusal {
	return &Refusal{fmt.Sprintf("metadata.%s[%s]", field, key), "components of this cluster trust it",
		fmt.Sprintf("remove it, or exclude it from reflection in the consumer with offloading.reflection.skip.%s in the values of the Refract chart; %s", field, limitRemedy(allow))}
}

// DropDenied removes from the maps the labels and annotations that the consumer's objects must not have. It returns a
// Refusal that names the first of them. It is for objects that are written without the denied metadata instead of not
// being written at all.
func (p *Policy) DropDenied(namespace *corev1.Namespace, labels, annotations map[string]string) *Refusal {
	limits, err := p.options.Limits.With(namespace.Annotations)
	first := checkMetadata(limits, labels, annotations)
	maps.DeleteFunc(labels, func(key, _ string) bool { return limits.DeniesLabel(key) })
	maps.DeleteFunc(annotations, func(key, _ string) bool { return limits.DeniesAnnotation(key) })
	if err != nil {
		return invalidLimits(namespace, err)
	}
	return first
}
