// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/refract-project/refract/host/document/fieldpath"
)

// The model runs the operations of a Document on deep copies, in the simplest way.

var errModel = errors.New("model")

type modelSeg struct {
	text     string
	verbatim bool
}

func (s modelSeg) wildcard() bool { return s.text == "*" && !s.verbatim }

// modelGet returns the value at a path. It returns false if there is no value, and an error if the path steps into a
// scalar or has an invalid index.
func modelGet(v any, path []modelSeg) (any, bool, error) {
	for _, s := range path {
		if s.wildcard() && v != nil {
			return nil, false, errModel
		}
		switch c := v.(type) {
		case nil:
			return nil, false, nil
		case map[string]any:
			e, ok := c[s.text]
			if !ok {
				return nil, false, nil
			}
			v = e
		case []any:
			i := fieldpath.ParseIndex(s.text)
			if i < 0 {
				return nil, false, errModel
			}
			if i >= len(c) {
				return nil, false, nil
			}
			v = c[i]
		default:
			return nil, false, errModel
		}
	}
	return v, true, nil
}

// modelSet sets the value at a path and returns the changed container.
func modelSet(v any, path []modelSeg, value any) (any, error) {
	if len(path) == 0 {
		return value, nil
	}
	if path[0].wildcard() {
		return nil, errModel
	}
	switch c := v.(type) {
	case nil:
		if path[0].text == "-" && !path[0].verbatim {
			return modelSet([]any{}, path, value)
		}
		return modelSet(map[string]any{}, path, value)
	case map[string]any:
		e, err := modelSet(c[path[0].text], path[1:], value)
		if err != nil {
			return nil, err
		}
		c = maps.Clone(c)
		c[path[0].text] = e
		return c, nil
	case []any:
		if path[0].text == "-" && !path[0].verbatim && len(path) == 1 {
			return append(slices.Clone(c), value), nil
		}
		i := fieldpath.ParseIndex(path[0].text)
		if i < 0 || i >= len(c) {
			return nil, errModel
		}
		e, err := modelSet(c[i], path[1:], value)
		if err != nil {
			return nil, err
		}
		c = slices.Clone(c)
		c[i] = e
		return c, nil
	}
	return nil, errModel
}

func modelRemove(v any, path []modelSeg) (any, int) {
	switch c := v.(type) {
	case map[string]any:
		return modelRemoveFromMap(maps.Clone(c), path)
	case []any:
		return modelRemoveFromList(slices.Clone(c), path)
	}
	return v, 0
}

func modelRemoveFromMap(c map[string]any, path []modelSeg) (any, int) {
	keys := []string{path[0].text}
	if path[0].wildcard() {
		keys = slices.Sorted(maps.Keys(c))
	}
	total := 0
	for _, k := range keys {
		e, ok := c[k]
		if !ok {
			continue
		}
		if len(path) == 1 {
			delete(c, k)
			total++
			continue
		}
		e, n := modelRemove(e, path[1:])
		c[k] = e
		total += n
	}
	return c, total
}

func modelRemoveFromList(c []any, path []modelSeg) (any, int) {
	from, to := fieldpath.ParseIndex(path[0].text), fieldpath.ParseIndex(path[0].text)+1
	if path[0].wildcard() {
		from, to = 0, len(c)
	}
	if from < 0 || to > len(c) {
		return c, 0
	}
	if len(path) == 1 {
		return slices.Delete(c, from, to), to - from
	}
	total := 0
	for i := from; i < to; i++ {
		e, n := modelRemove(c[i], path[1:])
		c[i] = e
		total += n
	}
	return c, total
}

// modelDiff appends the paths at which two values differ, by the rules of Document.Edits.
func modelDiff(out []string, path string, before any, was bool, after any, is bool) []string {
	b, wasMap := before.(map[string]any)
	a, isMap := after.(map[string]any)
	if isMap && is && (wasMap || !was && len(a) > 0) {
		for k := range b {
			if v, ok := a[k]; !ok {
				out = modelDiff(out, modelKey(path, k), b[k], true, nil, false)
			} else {
				out = modelDiff(out, modelKey(path, k), b[k], true, v, true)
			}
		}
		for k, v := range a {
			if _, ok := b[k]; !ok {
				out = modelDiff(out, modelKey(path, k), nil, false, v, true)
			}
		}
		return out
	}
	bl, wasList := before.([]any)
	al, isList := after.([]any)
	if wasList && isList && was && is && len(bl) == len(al) {
		for i := range al {
			out = modelDiff(out, path+"["+strconv.Itoa(i)+"]", bl[i], true, al[i], true)
		}
		return out
	}
	if was == is && reflect.DeepEqual(normal(before), normal(after)) {
		return out
	}
	return append(out, path)
}

// plainKey reports whether a key is written without brackets.
func plainKey(key string) bool { return fieldpath.Path{{Key: key, Index: -1}}.String() == key }

func modelKey(path, key string) string {
	if !plainKey(key) {
		return path + "[" + strings.ReplaceAll(key, "]", "]]") + "]"
	}
	if path != "" {
		path += "."
	}
	return path + key
}
