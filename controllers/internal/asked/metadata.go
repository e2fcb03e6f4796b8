// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package asked

import (
	"maps"

	"github.com/refract-project/refract/api/wire"
)

// Field is a map of the metadata.
type Field string

// Fields of the metadata that are recorded.
const (
	Labels      Field = "labels"
	Annotations Field = "annotations"
)

// MetadataValues returns the labels and annotations that are asked for as values.
func MetadataValues(labels, annotations map[string]string) Values {
	values := make(Values, len(labels)+len(annotations))
	for field, entries := range map[Field]map[string]string{Labels: labels, Annotations: annotations} {
		for key, value := range entries {
			values.Set(value, string(field), key)
		}
	}
	return values
}

// Merge returns the labels or annotations that an object should have which has the actual ones: desired, but with an entry that was asked for as
// before left to the others, whether they have changed or removed it. Entries of this project, by which objects are found, counted
// and restricted, are never left to others. Without a record of the metadata those entries count as asked for before that another client
// has written, which owned reports.
func (r *Record) Merge(field Field, actual, desired map[string]string, owned func(key string) bool) map[string]string {
	merged := maps.Clone(desired)
	for key, value := range desired {
		present, has := actual[key]
		if has && present == value || wire.IsProtocolKey(key) {
			continue
		}
		known := r != nil && r.Metadata != nil
		if known && !r.Metadata.Has(value, string(field), key) || !known && (!has || owned(key)) {
			continue
		}
		if has {
			merged[key] = present
		} else {
			delete(merged, key)
		}
	}
	return merged
}
