// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !wasip1

package sdk

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// value is one place of the in-memory object. A place that is set again keeps
// its handles; one that was removed is of KindAbsent.
type value struct {
	kind      Kind
	bool      bool
	int       int64
	float     float64
	string    string
	fields    map[string]*value
	list      []*value
	immutable bool // belongs to the context or the configuration
}

// newValue converts what a YAML or JSON decoder gives.
func newValue(v any) *value {
	switch v := v.(type) {
	case nil:
		return &value{kind: KindNull}
	case bool:
		return &value{kind: KindBool, bool: v}
	case int:
		return &value{kind: KindInt, int: int64(v)}
	case int32:
		return &value{kind: KindInt, int: int64(v)}
	case int64:
		return &value{kind: KindInt, int: v}
	case float64:
		return &value{kind: KindFloat, float: v}
	case json.Number:
		return newNumber(v)
	case string:
		return &value{kind: KindString, string: v}
	case map[string]any:
		return newMap(v)
	case map[string]string:
		return newMap(anyMap(v))
	case []any:
		return newList(v)
	case []string:
		return newList(anyList(v))
	}
	panic(&AccessError{"object", "", fmt.Sprintf("a value of type %T has no place in an object: decode it from YAML or JSON", v)})
}

func newNumber(n json.Number) *value {
	if i, err := strconv.ParseInt(n.String(), 10, 64); err == nil {
		return &value{kind: KindInt, int: i}
	}
	f, err := n.Float64()
	if err != nil {
		panic(&AccessError{"set_json", "", "the number " + n.String() + " is out of range"})
	}
	return &value{kind: KindFloat, float: f}
}

func newMap(m map[string]any) *value {
	fields := make(map[string]*value, len(m))
	for key, entry := range m {
		fields[key] = newValue(entry)
	}
	return &value{kind: KindMap, fields: fields}
}

func newList(l []any) *value {
	list := make([]*value, len(l))
	for i, element := range l {
		list[i] = newValue(element)
	}
	return &value{kind: KindList, list: list}
}

func anyMap(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for key, s := range m {
		out[key] = s
	}
	return out
}

func anyList(l []string) []any {
	out := make([]any, len(l))
	for i, s := range l {
		out[i] = s
	}
	return out
}

// any converts back.
func (v *value) any() any {
	switch v.kind {
	case KindBool:
		return v.bool
	case KindInt:
		return v.int
	case KindFloat:
		return v.float
	case KindString:
		return v.string
	case KindMap:
		m := make(map[string]any, len(v.fields))
		for key, field := range v.fields {
			m[key] = field.any()
		}
		return m
	case KindList:
		l := make([]any, len(v.list))
		for i, element := range v.list {
			l[i] = element.any()
		}
		return l
	}
	return nil
}

// clone copies a subtree; the copy may be changed.
func (v *value) clone() *value {
	c := *v
	c.immutable = false
	c.fields = make(map[string]*value, len(v.fields))
	for key, field := range v.fields {
		c.fields[key] = field.clone()
	}
	c.list = make([]*value, len(v.list))
	for i, element := range v.list {
		c.list[i] = element.clone()
	}
	return &c
}

// replace sets what is at the place; the places below are gone.
func (v *value) replace(by *value) {
	v.removeBelow()
	*v = *by
}

// remove takes the place out of the object.
func (v *value) remove() {
	v.removeBelow()
	*v = value{}
}

func (v *value) removeBelow() {
	for _, field := range v.fields {
		field.remove()
	}
	for _, element := range v.list {
		element.remove()
	}
}

func (v *value) makeImmutable() {
	v.immutable = true
	for _, field := range v.fields {
		field.makeImmutable()
	}
	for _, element := range v.list {
		element.makeImmutable()
	}
}

func (v *value) keys() []string { return slices.Sorted(maps.Keys(v.fields)) }

func (v *value) length() int {
	switch v.kind {
	case KindString:
		return len(v.string)
	case KindMap:
		return len(v.fields)
	case KindList:
		return len(v.list)
	}
	return 0
}
