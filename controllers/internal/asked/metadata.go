// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package asked

import (
	"maps"

	"github.com/refract-project/refract/api/wire"
)

// Field is the name of a string map in the metadata: labels or annotations.
type Field string

// The fields of the metadata that are recorded.
const (
	Labels      Field = "labels"
	Annotations Field = "annotations"
)

// MetadataValues returns the requested labels and annotations as Values.
func MetadataValues(labels, annotations map[string]string) Values {
	values := make(Values, len(labels)+len(annotations))
	for field, entries := range map[Field]map[string]string{Labels: labels, Annotations: annotations} {
		for key, value := range entries {
			values.Set(value, string(field), key)
		}
	}
	return values
}

// Merge returns the entries to write into the labels or annotations of an object. An entry gets its desired value if
// this value differs from the last requested one. Otherwise it keeps its actual value, even if another client has
// changed or removed it. Entries with keys of Refract's protocol always get the desired value, because they are used to
// find, count and restrict objects. If the record contains no metadata, missing entries and the entries for which owned
// returns true get the desired value, and all others keep their actual value.
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
