// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package raw reads fields of cached unstructured objects. Unlike the accessors of the objects, it does not copy the
// values. The results share memory with the cache and must not be modified.
package raw

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/host/document"
)

// Key returns the namespace and the name of an object.
func Key(object *unstructured.Unstructured) cache.ObjectName {
	return cache.ObjectName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// Labels returns the labels of an object, or nil if it has none.
func Labels(object map[string]any) map[string]any { return metadataField(object, "labels") }

// Annotations returns the annotations of an object, or nil if it has none.
func Annotations(object map[string]any) map[string]any { return metadataField(object, "annotations") }

func metadataField(object map[string]any, field string) map[string]any {
	return Map(Map(object["metadata"])[field])
}

// Status returns the status of an object, or nil if it has none.
func Status(object *unstructured.Unstructured) map[string]any { return Map(object.Object["status"]) }

// Map returns the value as a map, or nil if it is not a map.
func Map(value any) map[string]any {
	fields, _ := value.(map[string]any)
	return fields
}

// Nested returns the value at a path of fields, or nil if it does not exist.
func Nested(object map[string]any, path ...string) any {
	var value any = object
	for _, key := range path {
		value = Map(value)[key]
	}
	return value
}

// Text returns the string at a path of fields, or "" if there is none.
func Text(object *unstructured.Unstructured, path ...string) string {
	value, _ := Nested(object.Object, path...).(string)
	return value
}

// Equal reports whether two maps have equal content.
func Equal(a, b map[string]any) bool { return document.Of(a).Equal(document.Of(b)) }

// IsEmpty reports whether a value is null, an empty list, an empty map, or a map that contains only empty values.
func IsEmpty(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, below := range v {
			if !IsEmpty(below) {
				return false
			}
		}
		return true
	}
	return false
}
