// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !wasip1

package sdk

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// copyMap returns a copy of a map in which the values have the types that the host uses. The copy of a nil map is an
// empty map.
func copyMap[V any](m map[string]V) map[string]any {
	copied := make(map[string]any, len(m))
	for key, entry := range m {
		copied[key] = copyValue(entry)
	}
	return copied
}

func copyList[V any](list []V) []any {
	copied := make([]any, len(list))
	for i, element := range list {
		copied[i] = copyValue(element)
	}
	return copied
}

// copyValue returns a copy of a value from a YAML or JSON decoder. Whole numbers become int64.
func copyValue(v any) any {
	switch v := v.(type) {
	case nil, bool, int64, float64, string:
		return v
	case int:
		return int64(v)
	case int32:
		return int64(v)
	case json.Number:
		return parseNumber(v)
	case map[string]any:
		return copyMap(v)
	case map[string]string:
		return copyMap(v)
	case []any:
		return copyList(v)
	case []string:
		return copyList(v)
	}
	panic(&AccessError{"object", "", fmt.Sprintf("a value of type %T has no place in an object: decode it from YAML or JSON", v)})
}

func parseNumber(n json.Number) any {
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return i
	}
	f, err := n.Float64()
	if err != nil {
		panic(&AccessError{"object", "", "the number " + n.String() + " is out of range"})
	}
	return f
}
