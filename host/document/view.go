// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"math"
	"reflect"
	"slices"
	"strconv"
	"unsafe"

	"github.com/refract-project/refract/host/document/fieldpath"
)

// View is a value that was read from a Document. The zero View is absent. A View is valid until the next write or
// Reset.
type View struct {
	d    *Document
	raw  any   // the value, if id is 0
	id   int32 // number of the visited node, or the negated number for the node's value at the last Commit
	kind Kind
}

func rawView(v any) View { return View{raw: v, kind: kindOf(v)} }

// Of returns a View of a plain value.
func Of(v any) View { return rawView(v) }

func (d *Document) viewOf(id int32) View { return View{d: d, id: id, kind: d.nodes[id].kind} }

// Kind returns the kind of the value.
func (v View) Kind() Kind { return v.kind }

// Is reports whether v and w are views of the same node, or of the same map or list in memory. If nothing was written
// in between, their values are equal.
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

// Len returns the number of entries of a map, of elements of a list, or of bytes of a string. For other kinds it
// returns 0.
func (v View) Len() int {
	switch v.kind {
	case String:
		s, _ := v.Text()
		return len(s)
	case Map:
		if v.id == 0 {
			return len(v.raw.(map[string]any))
		}
		return v.size()
	case List:
		if v.id == 0 {
			return len(v.raw.([]any))
		}
		return v.size()
	}
	return 0
}

func (v View) size() int {
	if v.id < 0 {
		return v.d.pastSize(-v.id)
	}
	return v.d.sizeOf(v.id)
}

// Text returns the string. It returns false if the value is not a string. The string is borrowed: its memory may be
// overwritten after the next Reset.
func (v View) Text() (string, bool) {
	if v.kind != String {
		return "", false
	}
	if v.id != 0 {
		n := v.nodeOf()
		if n.flags&fBase == 0 {
			return n.str, true
		}
		return n.base.(string), true
	}
	return v.raw.(string), true
}

// scalarBits returns the value of a scalar: in base if base is set, otherwise as bits in num.
func (v View) scalarBits() (base any, num uint64) {
	if v.id == 0 {
		return v.raw, 0
	}
	n := v.nodeOf()
	if n.flags&fBase != 0 {
		return n.base, 0
	}
	return nil, n.num
}

// Int returns the value of an int, or of a float without a fraction, as an int64. It returns false for other values.
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

// wholeNumber returns the int64 that equals a float. It returns false if there is none.
func wholeNumber(f float64) (int64, bool) {
	// The comparisons with the two limits differ, because -2^63 can be represented as a float, but 2^63-1 cannot: it
	// would be rounded to 2^63, which is out of range.
	if f != math.Trunc(f) || f < math.MinInt64 || f >= math.MaxInt64 {
		return 0, false
	}
	return int64(f), true
}

// Float returns the value of an int or float. It returns false for other kinds.
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

// Field returns the entry of a map. The result is absent if v has no such entry or is not a map.
func (v View) Field(key string) View {
	if v.kind != Map {
		return View{}
	}
	if v.id > 0 {
		return v.d.lookupField(v.id, key)
	}
	if v.id < 0 {
		return v.d.pastField(-v.id, key)
	}
	if c, ok := v.raw.(map[string]any)[key]; ok {
		return rawView(c)
	}
	return View{}
}

// Index returns the element of a list. The result is absent if v has no such element or is not a list.
func (v View) Index(i int) View {
	if v.kind != List {
		return View{}
	}
	if v.id > 0 {
		return v.d.elementAt(v.id, i)
	}
	if v.id < 0 {
		return v.d.pastElem(-v.id, i)
	}
	if l := v.raw.([]any); uint(i) < uint(len(l)) {
		return rawView(l[i])
	}
	return View{}
}

// At returns the value at a path, or an absent View.
func (v View) At(path fieldpath.Path) View {
	for _, s := range path {
		if s.Index >= 0 {
			v = v.Index(s.Index)
		} else {
			v = v.Field(s.Key)
		}
	}
	return v
}

// Keys appends the sorted keys of a map to dst. The keys are borrowed: see Text.
func (v View) Keys(dst []string) []string {
	if v.kind != Map {
		return dst
	}
	start := len(dst)
	switch {
	case v.id == 0:
		for k := range v.raw.(map[string]any) {
			dst = append(dst, k)
		}
	case v.id < 0:
		for k := range v.fields {
			dst = append(dst, k)
		}
	default:
		dst = v.d.appendKeys(dst, v.id)
	}
	slices.Sort(dst[start:])
	return dst
}

// appendKeys appends the keys of a map to dst. The counted work includes removed entries of the base, because they
// are visited each time.
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

// entriesWork returns the work to iterate over a map, including its removed entries.
func (n *node) entriesWork() int64 {
	return workEntry * (int64(len(n.baseFields())) + int64(n.count))
}

func quotePath(s string) string {
	return strconv.Quote(fieldpath.Shorten(s))
}
