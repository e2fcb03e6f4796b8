// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !wasip1

package sdk

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

func (h handle) setString(path, s string) {
	if !utf8.ValidString(s) {
		newAccess("set_string", path).fail("the string is not valid UTF-8")
	}
	h.set("set_string", path, &value{kind: KindString, string: strings.Clone(s)})
}

func (h handle) setInt(path string, i int64) { h.set("set_int", path, &value{kind: KindInt, int: i}) }

func (h handle) setFloat(path string, f float64) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		newAccess("set_float", path).fail("NaN and infinity are not JSON")
	}
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
	a := newAccess("ensure_map", path)
	if h.appends(a) {
		return h.setMap(path)
	}
	if v := h.at("ensure_map", path); v != nil && v.kind != KindNull {
		a.writable(v)
		if v.kind != KindMap {
			a.fail("expected map, found %s", v.kind)
		}
		return handle{h.s, v}
	}
	return handle{h.s, h.set("ensure_map", path, newMap(nil))}
}

// appends reports a path that ends in the place behind the last element of a list.
func (h handle) appends(a *access) bool {
	last := len(a.segments) - 1
	if last < 0 || !a.segments[last].appends() {
		return false
	}
	v := h.v
	for _, s := range a.segments[:last] {
		if v == nil {
			return false
		}
		v = a.step(v, s)
	}
	return v != nil && v.kind == KindList
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

// set puts v at path, makes the maps on the way, and returns the place.
func (h handle) set(function, path string, v *value) *value {
	a := newAccess(function, path)
	if len(a.segments) == 0 {
		a.fail("a root cannot be replaced")
	}
	a.writable(h.v)
	parent := h.v
	last := len(a.segments) - 1
	for i, s := range a.segments[:last] {
		a.noWildcard(s)
		next := a.step(parent, s)
		if next == nil || next.kind == KindNull {
			next = a.put(parent, s, a.segments[i+1].container())
		}
		parent = next
	}
	a.noWildcard(a.segments[last])
	return a.put(parent, a.segments[last], v)
}

func (a *access) noWildcard(s segment) {
	if s.wildcard() {
		a.fail("a wildcard is for remove alone")
	}
}

func (a *access) writable(v *value) {
	switch {
	case v == nil || v.kind == KindAbsent:
		a.fail("there is nothing to write to")
	case v.immutable:
		a.fail("context and configuration are read-only")
	}
}

// put sets one entry of a map or list and returns its place.
func (a *access) put(parent *value, s segment, v *value) *value {
	switch parent.kind {
	case KindNull:
		parent.replace(s.container())
		if s.appends() {
			return a.putElement(parent, s, v)
		}
	case KindMap:
	case KindList:
		return a.putElement(parent, s, v)
	default:
		a.fail("it leads through %s", parent.kind)
	}
	if present := parent.fields[s.key]; present != nil {
		present.replace(v)
		return present
	}
	parent.fields[s.key] = v
	return v
}

func (a *access) putElement(list *value, s segment, v *value) *value {
	if s.appends() {
		list.list = append(list.list, v)
		return v
	}
	i, ok := s.index()
	if !ok || i >= len(list.list) {
		a.fail("%q is no index of a list of %d", s.key, len(list.list))
	}
	list.list[i].replace(v)
	return list.list[i]
}

func (h handle) remove(paths string) int {
	removed := 0
	for path := range strings.SplitSeq(paths, "\n") {
		a := newAccess("remove", path)
		if len(a.segments) == 0 {
			a.fail("a root cannot be removed")
		}
		if h.v == nil || h.v.kind == KindAbsent {
			continue
		}
		a.writable(h.v)
		removed += h.v.removeAt(a.segments)
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
	case v.kind == KindList && s.key == "*":
		return v.list
	case v.kind == KindList:
		if i, ok := s.index(); ok && i < len(v.list) {
			return v.list[i : i+1]
		}
	}
	return nil
}

func (v *value) removeEntry(s segment) int {
	gone := v.match(s)
	removed := len(gone)
	for _, entry := range gone {
		entry.remove()
	}
	absent := func(entry *value) bool { return entry.kind == KindAbsent }
	if v.kind == KindList {
		v.list = slices.DeleteFunc(v.list, absent)
	} else if removed > 0 {
		maps.DeleteFunc(v.fields, func(_ string, entry *value) bool { return absent(entry) })
	}
	return removed
}

func (h handle) removeElem(i int) {
	a := newAccess("remove_elem", "")
	v := h.scalar("remove_elem", "", KindList)
	a.writable(v)
	if i < 0 || i >= len(v.list) {
		a.fail("no element %d", i)
	}
	v.removeEntry(segment{key: strconv.Itoa(i)})
}

func (h handle) removeKeys(paths string, from handle, listPaths string) int {
	if h.v == nil || from.v == nil {
		return 0
	}
	maps, lists := strings.Split(paths, "\n"), strings.Split(listPaths, "\n")
	if len(maps) != len(lists) {
		newAccess("remove_keys", "").fail("it takes as many paths of lists as of maps")
	}
	removed := 0
	for i, path := range maps {
		removed += h.removeListed(path, from, lists[i])
	}
	return removed
}

func (h handle) removeListed(path string, from handle, listPath string) int {
	list := from.scalar("remove_keys", listPath, KindList)
	if list == nil {
		return h.removeMatching("remove_keys", path, nil)
	}
	patterns := make([]string, len(list.list))
	for i, element := range list.list {
		if element.kind != KindString {
			newAccess("remove_keys", path).fail("expected globs, found %s", element.kind)
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
		if slices.ContainsFunc(patterns, func(p string) bool { return p != "" && !strings.HasPrefix(key, systemPrefix) && Match(p, key) }) {
			removed += v.removeEntry(segment{key: key, verbatim: true})
		}
	}
	return removed
}

// systemPrefix begins the labels and annotations by which the clusters know
// whose a copy is. No glob matches them.
const systemPrefix = "offloading.liqo.io/"

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
