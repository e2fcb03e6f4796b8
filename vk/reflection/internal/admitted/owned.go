// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package admitted

import (
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Decided returns the fields that the manager alone owns, by server-side apply. An API server computes the owners of fields before admission
// changes a write, and takes a field from its owner that another client changes: a value that was not requested and still belongs to
// the manager is admission's.
func Decided(fields []Field, entries []metav1.ManagedFieldsEntry, manager string) []Field {
	var ours []any
	var others []any
	for _, entry := range entries {
		if entry.FieldsV1 == nil || entry.Subresource != "" {
			continue
		}
		var owned any
		if json.NewDecoder(entry.FieldsV1.GetRawReader()).Decode(&owned) != nil {
			return nil
		}
		if entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply {
			ours = append(ours, owned)
		} else {
			others = append(others, owned)
		}
	}
	return slices.DeleteFunc(slices.Clone(fields), func(field Field) bool {
		has := func(owned any) bool { return owns(owned, field.Path) }
		return !slices.ContainsFunc(ours, has) || slices.ContainsFunc(others, has)
	})
}

// owns reports whether a trie of fields contains a path, a field below it, or an atomic field above it.
func owns(owned any, path []string) bool {
	for _, key := range path {
		fields, ok := owned.(map[string]any)
		if !ok {
			return false
		}
		if len(fields) == 0 {
			return true
		}
		if owned, ok = fields["f:"+key]; !ok {
			return false
		}
	}
	return true
}
