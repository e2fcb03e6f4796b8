// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package content

import (
	"maps"
)

// IsOwn reports whether a field is not reflected because each cluster has its own value for it.
func IsOwn(key string) bool {
	return key == "apiVersion" || key == "kind" || key == "metadata" || key == "status"
}

// Merge returns base with the entries in added and without the keys in dropped.
func Merge(base map[string]any, added map[string]string, dropped []string) map[string]any {
	merged := make(map[string]any, len(base)+len(added))
	maps.Copy(merged, base)
	for _, key := range dropped {
		delete(merged, key)
	}
	for key, value := range added {
		merged[key] = value
	}
	return merged
}

// Set sets the value at a path. It creates the maps on the path, and replaces those that exist.
func Set(object map[string]any, path []string, value any) {
	for _, key := range path[:len(path)-1] {
		below := map[string]any{}
		object[key] = below
		object = below
	}
	object[path[len(path)-1]] = value
}

// RemoveField removes the field at a path from a value. In lists, it removes the field from each item.
func RemoveField(value any, path []string) {
	switch value := value.(type) {
	case map[string]any:
		if len(path) == 1 {
			delete(value, path[0])
			return
		}
		RemoveField(value[path[0]], path[1:])
	case []any:
		for _, item := range value {
			RemoveField(item, path)
		}
	}
}
