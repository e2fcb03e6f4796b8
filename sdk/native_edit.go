// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !wasip1

package sdk

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
)

func (h handle) setString(path, s string) {
	h.set("set_string", path, &value{kind: KindString, string: strings.Clone(s)})
}

func (h handle) setInt(path string, i int64) { h.set("set_int", path, &value{kind: KindInt, int: i}) }

func (h handle) setFloat(path string, f float64) {
	h.set("set_float", path, &value{kind: KindFloat, float: f})
}

func (h handle) setBool(path string, b bool) {
	h.set("set_bool", path, &value{kind: KindBool, bool: b})
}

func (h handle) setNull(path string) { h.set("set_null", path, &value{kind: KindNull}) }

func (h handle) setMap(path string) handle {
	return handle{h.s, h.set("set_map", path, newMap(nil))}
}

func (h handle) setList(path string) handle {
	return handle{h.s, h.set("set_list", path, newList(nil))}
}

func (h handle) ensureMap(path string) handle {
	if v := h.at("ensure_map", path); v != nil && v.kind != KindNull {
		a := newAccess("ensure_map", path)
		a.writable(v)
		if v.kind != KindMap {
			a.fail("expected a map, found a %s", v.kind)
		}
		return handle{h.s, v}
	}
	return handle{h.s, h.set("ensure_map", path, newMap(nil))}
}

func (h handle) setJSON(path string, text []byte) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var decoded any
	err := decoder.Decode(&decoded)
	if err == nil {
		if _, more := decoder.Token(); more != io.EOF {
			newAccess("set_json", path).fail("text follows the JSON value")
		}
	}
	if err != nil {
		newAccess("set_json", path).fail("decoding JSON, %v", err)
	}
	h.set("set_json", path, newValue(decoded))
}

func (h handle) copy(path string, source handle) {
	if source.v == nil {
		newAccess("copy", path).fail("the source is absent")
	}
	h.set("copy", path, source.v.clone())
}

// set puts v at path and makes the maps on the way.
func (h handle) set(function, path string, v *value) *value {
	a := newAccess(function, path)
	if len(a.segments) == 0 {
		a.fail("a root cannot be replaced")
	}
	if h.v == nil {
		a.fail("the handle is absent")
	}
	a.writable(h.v)
	parent := h.v
	last := len(a.segments) - 1
	for _, s := range a.segments[:last] {
		next := a.step(parent, s)
		if next == nil || next.kind == KindNull {
			next = newMap(nil)
			a.put(parent, s, next)
		}
		parent = next
	}
	a.put(parent, a.segments[last], v)
	return v
}

func (a *access) writable(v *value) {
	if v.frozen {
		a.fail("context and configuration are read-only")
	}
}

func (a *access) put(parent *value, s segment, v *value) {
	if s.wildcard() {
		a.fail("a wildcard is for remove alone")
	}
	switch parent.kind {
	case KindNull:
		parent.kind, parent.fields = KindMap, map[string]*value{s.key: v}
	case KindMap:
		parent.fields[s.key] = v
	case KindList:
		a.putElement(parent, s, v)
	default:
		a.fail("it leads through a %s", parent.kind)
	}
}

func (a *access) putElement(list *value, s segment, v *value) {
	if !s.verbatim && s.key == "-" {
		list.list = append(list.list, v)
		return
	}
	i, ok := s.index()
	if !ok || i >= len(list.list) {
		a.fail("%q is no index of a list of %d", s.key, len(list.list))
	}
	list.list[i] = v
}

func (h handle) remove(paths string) int {
	removed := 0
	for path := range strings.SplitSeq(paths, "\n") {
		a := newAccess("remove", path)
		if len(a.segments) == 0 {
			a.fail("a root cannot be removed")
		}
		if h.v != nil {
			a.writable(h.v)
			removed += h.v.removeAt(a.segments)
		}
	}
	return removed
}

// removeAt removes what is below v; a path that leads nowhere removes nothing.
func (v *value) removeAt(segments []segment) int {
	if len(segments) == 1 {
		return v.removeEntry(segments[0])
	}
	removed := 0
	for _, next := range v.match(segments[0]) {
		removed += next.removeAt(segments[1:])
	}
	return removed
}

// match returns the entries of v for a segment.
func (v *value) match(s segment) []*value {
	switch {
	case v.kind == KindMap && s.wildcard():
		var all []*value
		for _, key := range v.keys() {
			all = append(all, v.fields[key])
		}
		return all
	case v.kind == KindMap && v.fields[s.key] != nil:
		return []*value{v.fields[s.key]}
	case v.kind == KindList && s.wildcard():
		return v.list
	case v.kind == KindList:
		if i, ok := s.index(); ok && i < len(v.list) {
			return v.list[i : i+1]
		}
	}
	return nil
}

func (v *value) removeEntry(s segment) int {
	removed := len(v.match(s))
	switch {
	case removed == 0:
	case v.kind == KindMap && s.wildcard():
		clear(v.fields)
	case v.kind == KindMap:
		delete(v.fields, s.key)
	case s.wildcard():
		v.list = nil
	default:
		i, _ := s.index()
		v.list = slices.Delete(v.list, i, i+1)
	}
	return removed
}

func (h handle) removeElem(i int) {
	a := newAccess("remove_elem", "")
	v := h.scalar("remove_elem", "", KindList)
	if v == nil || i < 0 || i >= len(v.list) {
		a.fail("no element %d", i)
	}
	a.writable(v)
	v.list = slices.Delete(v.list, i, i+1)
}

func (h handle) removeKeys(path string, globs handle) int {
	list := globs.scalar("remove_keys", "", KindList)
	if list == nil {
		return 0
	}
	patterns := make([]string, len(list.list))
	for i, element := range list.list {
		if element.kind != KindString {
			newAccess("remove_keys", path).fail("the globs hold a %s", element.kind)
		}
		patterns[i] = element.string
	}
	return h.removeMatching("remove_keys", path, patterns)
}

func (h handle) removeGlob(path, globs string) int {
	return h.removeMatching("remove_keys_glob", path, strings.Split(globs, "\n"))
}

func (h handle) removeMatching(function, path string, patterns []string) int {
	v := h.scalar(function, path, KindMap)
	if v == nil {
		return 0
	}
	newAccess(function, path).writable(v)
	removed := 0
	for _, key := range v.keys() {
		if slices.ContainsFunc(patterns, func(p string) bool { return Match(p, key) }) {
			delete(v.fields, key)
			removed++
		}
	}
	return removed
}

// encodeJSON writes as the host does: compact, keys sorted, no HTML escaping.
func encodeJSON(v any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(&AccessError{"json", "", err.Error()})
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
