// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
)

// Decode decodes the value at path into a Go value, by the rules of
// encoding/json. An absent value is an error. In a map, a list or any,
// whole numbers become int64, as in Kubernetes: a float64 is exact up to
// 2^53 only. In a struct field of type any they become a json.Number.
//
// It is convenient for a list of structs, but has a price:
// encoding/json adds about 290 KB to a module that uses it, and takes
// some ten times as long as reading only the fields that matter.
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

// exact replaces the numbers below v, in place, by int64 and float64.
func exact(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := strconv.ParseInt(string(v), 10, 64); err == nil {
			return i
		}
		f, _ := v.Float64() // the host has no numbers out of range
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

// Encode encodes a Go value as JSON and sets it at path. Fields that its type
// does not have are lost: decode and encode the smallest subtree that will do.
func Encode(n Node, path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	n.SetJSON(path, text)
	return nil
}
