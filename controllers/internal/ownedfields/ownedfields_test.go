// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package ownedfields

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func entry(manager, subresource, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
}

func TestOf(t *testing.T) {
	entries := []metav1.ManagedFieldsEntry{
		entry("us", "", `{"f:metadata":{"f:labels":{".":{},"f:x.io/a":{}}},"f:spec":{"f:labels":{"f:no":{}}}}`),
		entry("us", "", `{"f:metadata":{"f:annotations":{"f:b":{}}}}`),
		entry("us", "status", `{"f:metadata":{"f:labels":{"f:status":{}}}}`),
		entry("them", "", `{"f:metadata":{"f:labels":{"f:theirs":{}}}}`),
		entry("us", "", `broken`),
		{Manager: "us"},
	}
	owned := Of(entries, "us")
	if len(owned.Labels) != 1 || !owned.OwnsLabel("x.io/a") || len(owned.Annotations) != 1 || !owned.OwnsAnnotation("b") {
		t.Errorf("owned = %v", owned)
	}
	if kept := Only(entries, "us"); len(kept) != 4 {
		t.Errorf("kept %d entries, want those of the main resource that are ours: 4", len(kept))
	}
}
