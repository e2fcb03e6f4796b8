// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"math"
	"reflect"
	"slices"
	"strconv"
	"unsafe"
)

// View is a value read from a Document. The zero View is absent. A View is valid until the next write or Reset.
type View struct {
	d    *Document
	raw  any   // value, if id is 0
	id   int32 // visited node
	kind Kind
}

func rawView(v any) View { return View{raw: v, kind: kindOf(v)} }

// Of returns a View of a plain value.
func Of(v any) View { return rawView(v) }

func (d *Document) viewOf(id int32) View { return View{d: d, id: id, kind: d.nodes[id].kind} }

// Kind returns the kind of the value.
func (v View) Kind() Kind { return v.kind }

// Is reports whether both are views of the same node, or of the same map or list in memory. Without a write in between
// they have the same value.
func (v View) Is(w View) bool {
	if v.kind != w.kind || v.id != w.id || v.d != w.d {
		return false
	}
	if v.id != 0 {
		return true
	}
	switch v.kind {
	case Map:
		return reflect.ValueOf(v.raw).Pointer() == reflect.ValueOf(w.raw).Pointer()
	case List:
		a, b := v.raw.([]any), w.raw.([]any)
		return len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b)
	}
	return false
}

// Exists reports whether the value is neither absent nor null.
func (v View) Exists() bool { return v.kind > Null }

// Len returns the number of entries of a map or list or of bytes of a string, and 0 for other kinds.
func (v View) Len() int {
	switch v.kind {
	case String:
		s, _ := v.Text()
		return len(s)
	case Map:
		if v.id == 0 {
			return len(v.raw.(map[string]any))
		}
		return v.d.sizeOf(v.id)
	case List:
		if v.id == 0 {
			return len(v.raw.([]any))
		}
		return v.d.sizeOf(v.id)
	}
	return 0
}

// Text returns the string, or false if the value is no string. The string is borrowed: it may be overwritten after the
// next Reset.
func (v View) Text() (string, bool) {
	if v.kind != String {
		return "", false
	}
	if v.id != 0 {
		n := &v.d.nodes[v.id]
		if n.flags&fBase == 0 {
			return n.str, true
		}
		return n.base.(string), true
	}
	return v.raw.(string), true
}

// scalarBits returns the value of a scalar: in base if that is set, otherwise as bits in num.
func (v View) scalarBits() (base any, num uint64) {
	if v.id == 0 {
		return v.raw, 0
	}
	n := &v.d.nodes[v.id]
	if n.flags&fBase != 0 {
		return n.base, 0
	}
	return nil, n.num
}

// Int returns the value as an int64, also of a float without a fraction. It returns false for other values.
func (v View) Int() (int64, bool) {
	if v.kind == Float {
		f, _ := v.Float()
		return wholeNumber(f)
	}
	if v.kind != Int {
		return 0, false
	}
	switch base, num := v.scalarBits(); i := base.(type) {
	case int64:
		return i, true
	case int:
		return int64(i), true
	case int32:
		return int64(i), true
	default:
		return int64(num), true
	}
}

// wholeNumber returns the int equal to a float, or false if there is none.
func wholeNumber(f float64) (int64, bool) {
	// -2^63 is a float, 2^63-1 is not: its neighbour 2^63 is out of range.
	if f != math.Trunc(f) || f < math.MinInt64 || f >= math.MaxInt64 {
		return 0, false
	}
	return int64(f), true
}

// Float returns the value of an int or float, or false for other kinds.
func (v View) Float() (float64, bool) {
	if v.kind == Int {
		i, _ := v.Int()
		return float64(i), true
	}
	if v.kind != Float {
		return 0, false
	}
	switch base, num := v.scalarBits(); f := base.(type) {
	case float64:
		return f, true
	case float32:
		return float64(f), true
	default:
		return math.Float64frombits(num), true
	}
}

// Bool returns the value of a boolean. ok is false for other kinds.
func (v View) Bool() (value, ok bool) {
	if v.kind != Bool {
		return false, false
	}
	base, num := v.scalarBits()
	if b, ok := base.(bool); ok {
		return b, true
	}
	return num != 0, true
}

// Field returns the entry of a map. It is absent if v has no such entry or is no map.
func (v View) Field(key string) View {
	if v.kind != Map {
		return View{}
	}
	if v.id != 0 {
		return v.d.lookupField(v.id, key)
	}
	if c, ok := v.raw.(map[string]any)[key]; ok {
		return rawView(c)
	}
	return View{}
}

// Index returns the element of a list. It is absent if v has no such element or is no list.
func (v View) Index(i int) View {
	if v.kind != List {
		return View{}
	}
	if v.id != 0 {
		return v.d.elementAt(v.id, i)
	}
	if l := v.raw.([]any); uint(i) < uint(len(l)) {
		return rawView(l[i])
	}
	return View{}
}

// Keys appends the sorted keys of a map. They are borrowed: see Text.
func (v View) Keys(dst []string) []string {
	if v.kind != Map {
		return dst
	}
	start := len(dst)
	if v.id == 0 {
		for k := range v.raw.(map[string]any) {
			dst = append(dst, k)
		}
	} else {
		dst = v.d.appendKeys(dst, v.id)
	}
	slices.Sort(dst[start:])
	return dst
}

// appendKeys appends the keys of a map. Its work includes removed entries of the base, which are visited each time.
func (d *Document) appendKeys(dst []string, id int32) []string {
	n := &d.nodes[id]
	d.work += n.entriesWork()
	for k := range n.baseFields() {
		if n.first == 0 || d.visitedChild(id, k) == 0 {
			dst = append(dst, k)
		}
	}
	for c := n.first; c != 0; c = d.nodes[c].next {
		if m := &d.nodes[c]; m.state != removed {
			dst = append(dst, m.key)
		}
	}
	return dst
}

// entriesWork returns the work of iterating over a map, including its removed entries.
func (n *node) entriesWork() int64 {
	return workEntry * (int64(len(n.baseFields())) + int64(n.count))
}

func quotePath(s string) string {
	if len(s) > maxErrorPath {
		s = s[:maxErrorPath]
	}
	return strconv.Quote(s)
}
