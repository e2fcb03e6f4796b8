// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package admitted

import (
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/refract-project/refract/host/document"
)

// Decided divides differing fields into two groups: decided contains the fields that only the manager owns through
// server-side apply, and open contains the fields that other clients may have changed. An API server computes the
// owners of fields before admission changes a write, and a client that changes a field becomes an owner of it.
// Therefore, if the manager is the only owner of a value that was not requested, admission must have set this value.
// Lists with items that the manager does not own never count as decided. A list that differs only in such items is not
// open either, because the manager's own items are stored as sent.
func Decided(fields []Field, sent, stored map[string]any, entries []metav1.ManagedFieldsEntry, manager string) (decided, open []Field) {
	var ours []any
	var others []any
	for _, entry := range entries {
		if entry.FieldsV1 == nil || entry.Subresource != "" {
			continue
		}
		var owned any
		if json.NewDecoder(entry.FieldsV1.GetRawReader()).Decode(&owned) != nil {
			return nil, fields
		}
		if entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply {
			ours = append(ours, owned)
		} else {
			others = append(others, owned)
		}
	}
	for _, field := range fields {
		owns := func(owned any) bool { _, has := below(owned, field.Path); return has }
		i := slices.IndexFunc(ours, owns)
		if i < 0 {
			open = append(open, field)
			continue
		}
		owned, _ := below(ours[i], field.Path)
		requested, _ := at(sent, field.Path)
		present, _ := at(stored, field.Path)
		part, whole := ownedPart(owned, present)
		switch {
		case !whole && document.Of(requested).CoveredBy(document.Of(part)):
		case !whole || slices.ContainsFunc(others, owns):
			open = append(open, field)
		default:
			decided = append(decided, field)
		}
	}
	return decided, open
}

// below returns the part of a trie of fields below a path. has reports whether the trie contains the path or an atomic
// field above it.
func below(owned any, path []string) (trie any, has bool) {
	for _, key := range path {
		fields, ok := owned.(map[string]any)
		if !ok {
			return nil, false
		}
		if len(fields) == 0 {
			return owned, true
		}
		if owned, ok = fields["f:"+key]; !ok {
			return nil, false
		}
	}
	return owned, true
}

// ownedPart returns a value without the list items that are not in a trie of owned fields. whole reports whether all
// items are in the trie.
func ownedPart(owned, value any) (part any, whole bool) {
	fields, _ := owned.(map[string]any)
	if len(fields) == 0 {
		return value, true // an atomic field is owned as a whole
	}
	whole = true
	switch value := value.(type) {
	case map[string]any:
		kept := make(map[string]any, len(value))
		for key, entry := range value {
			below, complete := ownedPart(fields["f:"+key], entry)
			kept[key], whole = below, whole && complete
		}
		return kept, whole
	case []any:
		kept := make([]any, 0, len(value))
		for _, item := range value {
			owned, has := ownedItem(fields, item)
			if !has {
				whole = false
				continue
			}
			below, complete := ownedPart(owned, item)
			kept, whole = append(kept, below), whole && complete
		}
		return kept, whole
	}
	return value, true
}

// ownedItem returns the trie of a list item. The trie identifies items by their keys or by their value.
func ownedItem(fields map[string]any, item any) (trie any, has bool) {
	for name, trie := range fields {
		kind, text, _ := strings.Cut(name, ":")
		var identity any
		if kind != "k" && kind != "v" || json.Unmarshal([]byte(text), &identity) != nil {
			continue
		}
		same := document.Of(identity).Equal(document.Of(item))
		if kind == "k" {
			same = document.Of(identity).CoveredBy(document.Of(item))
		}
		if same {
			return trie, true
		}
	}
	return nil, false
}
