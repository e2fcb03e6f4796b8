// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package content

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// contentHash returns the sum of the hashes of the fields. If top is true, content is a whole object, and only fields
// that can be reflected are included. A null field is treated as absent.
func contentHash(content map[string]any, top bool) (sum uint64) {
	for key, value := range content {
		if value != nil && !(top && IsOwn(key)) {
			sum += FieldHash(key, document.Of(value))
		}
	}
	return sum
}

// Hash returns a hash of an object's labels, annotations, and fields below the path. If the path is empty, all fields
// that are reflected are included.
func Hash(object *unstructured.Unstructured, path []string) uint64 {
	return MetadataHash(raw.Labels(object.Object), raw.Annotations(object.Object)) + fieldsHash(object, path)
}

// fieldsHash returns the summand of Hash for the fields, without labels and annotations.
func fieldsHash(object *unstructured.Unstructured, path []string) (sum uint64) {
	if digest, trimmed := DigestOf(object); trimmed {
		return digest
	}
	fields, _ := raw.Nested(object.Object, path...).(map[string]any)
	for key, value := range fields {
		if len(path) > 0 || !IsOwn(key) {
			sum += FieldHash(key, document.Of(value))
		}
	}
	return sum
}

// MetadataHash returns the hash of labels and annotations.
func MetadataHash(labels, annotations map[string]any) uint64 {
	return FieldHash("labels", document.Of(labels)) + FieldHash("annotations", document.Of(annotations))
}

// FieldHash returns a hash of a key and its value. It includes the key so that a sum of such hashes changes if two keys
// swap their values.
func FieldHash(key string, value document.View) uint64 {
	mixed := (document.Hash(key) ^ value.Hash()) * 0x9e3779b97f4a7c15
	return mixed ^ mixed>>32
}

// IntentHash returns a hash of an object's labels, annotations and reflected fields, except for the labels and
// annotations that Refract itself writes. Refract writes those after changes of the copy. If they were included, each
// round of a fight over the copy would look like a new request by the user.
func IntentHash(local *unstructured.Unstructured) uint64 {
	return MetadataHash(WithoutBookkeeping(raw.Labels(local.Object)), WithoutBookkeeping(raw.Annotations(local.Object))) + fieldsHash(local, nil)
}

// WithoutBookkeeping returns labels or annotations without the entries that Refract writes. It returns the map itself
// if there are none of these, and nil if no other entries are left.
func WithoutBookkeeping(entries map[string]any) map[string]any {
	for _, key := range wire.Bookkeeping() {
		if _, has := entries[key]; !has {
			continue
		}
		entries = maps.Clone(entries)
		maps.DeleteFunc(entries, func(key string, _ any) bool { return wire.IsBookkeeping(key) })
		break
	}
	if len(entries) == 0 {
		return nil
	}
	return entries
}
