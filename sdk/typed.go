// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
)

// Decode decodes the value at path into a Go value, following the rules of encoding/json. It returns an error if the
// value is absent. In a map, a list or a variable of type any, whole numbers become int64, as in Kubernetes, because
// a float64 is exact only up to 2^53. In a struct field of type any they become a json.Number.
//
// Decode is convenient for a list of structs, but encoding/json adds about 290 KB to a module, and takes about ten
// times as long as reading single fields.
func Decode(n Node, path string, into any) error {
	text := n.JSON(path)
	if text == nil {
		return errors.New(path + " is absent")
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	switch into := into.(type) {
	case *any:
		*into = exact(*into)
	case *map[string]any:
		exact(*into)
	case *[]any:
		exact(*into)
	}
	return nil
}

// exact converts the numbers in v to int64 and float64. It modifies v.
func exact(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return i
		}
		f, _ := v.Float64() // this cannot fail, because numbers from the host are never out of range
		return f
	case map[string]any:
		for key, entry := range v {
			v[key] = exact(entry)
		}
	case []any:
		for i, element := range v {
			v[i] = exact(element)
		}
	}
	return v
}

// Encode encodes a Go value as JSON and sets it at path. Fields that the Go type does not have are lost, so decode
// and encode the smallest possible subtree.
func Encode(n Node, path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	n.SetJSON(path, text)
	return nil
}
