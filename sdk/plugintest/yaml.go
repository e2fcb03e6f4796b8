// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugintest

import (
	"bytes"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/yaml"
)

// decode decodes YAML into the types of unstructured objects. Whole numbers become int64.
func decode(text []byte) (map[string]any, error) {
	text, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var decoded any
	if err := decoder.Decode(&decoded); err != nil {
		return nil, err
	}
	switch m := typed(decoded).(type) {
	case nil:
		return nil, nil
	case map[string]any:
		return m, nil
	default:
		return nil, fmt.Errorf("expected a map, found %T", m)
	}
}

func typed(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		f, _ := v.Float64() // this cannot fail, because the YAML decoder has already parsed the number as a float64
		return f
	case map[string]any:
		for key, entry := range v {
			v[key] = typed(entry)
		}
	case []any:
		for i, element := range v {
			v[i] = typed(element)
		}
	}
	return v
}

// encode encodes an object in the format of golden files, with sorted keys.
func encode(object map[string]any) string {
	text, err := yaml.Marshal(object)
	if err != nil {
		panic(fmt.Sprintf("encoding a result of JSON types, %v", err))
	}
	return string(text)
}

// clone returns a deep copy of a decoded value.
func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		c := make(map[string]any, len(v))
		for key, entry := range v {
			c[key] = clone(entry)
		}
		return c
	case []any:
		c := make([]any, len(v))
		for i, element := range v {
			c[i] = clone(element)
		}
		return c
	}
	return v
}

func cloneMap(m map[string]any) map[string]any {
	if m == nil {
		return nil
	}
	return clone(m).(map[string]any)
}
