// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

// Covers reports whether every value of n is present and equal in remote, whose maps may have additional entries from
// an API server or a controller. Lists must have the same length, and each element must be covered by the element at
// the same position.
func Covers(n Node, remote any) bool { return coversView(n.View(), rawView(remote), false) }

// CoveredBy reports whether w covers v, as described at Covers.
func (v View) CoveredBy(w View) bool { return coversView(v, w, false) }

// Equal reports whether two values are equal. An absent value is not equal to any value.
func (v View) Equal(w View) bool { return equalViews(v, w) }

func equalViews(v, w View) bool { return coversView(v, w, true) }

func coversView(v, w View, exact bool) bool {
	switch v.kind {
	case Map:
		return w.kind == Map && coversMap(v, w, exact)
	case List:
		return w.kind == List && coversList(v, w, exact)
	case Int, Float:
		return sameNumber(v, w)
	case String:
		a, _ := v.Text()
		b, ok := w.Text()
		return ok && a == b
	case Bool:
		a, _ := v.Bool()
		b, ok := w.Bool()
		return ok && a == b
	case Null:
		return w.kind == Null
	}
	return false
}

// sameNumber compares an int and a float exactly. Above 2^53, where floats have gaps, they are equal only if their
// values are exactly the same.
func sameNumber(v, w View) bool {
	if v.kind == Float && w.kind == Float {
		a, _ := v.Float()
		b, _ := w.Float()
		return a == b
	}
	a, ok := v.Int()
	b, also := w.Int()
	return ok && also && a == b
}

func coversMap(v, w View, exact bool) bool {
	if n, m := v.Len(), w.Len(); n > m || exact && n != m {
		return false
	}
	if v.id == 0 {
		for k, e := range v.raw.(map[string]any) {
			if !coversView(rawView(e), w.Field(k), exact) {
				return false
			}
		}
		return true
	}
	if v.id < 0 {
		for k, e := range v.fields {
			if !coversView(e, w.Field(k), exact) {
				return false
			}
		}
		return true
	}
	d, n := v.d, &v.d.nodes[v.id]
	d.work += n.entriesWork()
	for k, e := range n.baseFields() {
		if n.first != 0 && d.visitedChild(v.id, k) != 0 {
			continue
		}
		if !coversView(rawView(e), w.Field(k), exact) {
			return false
		}
	}
	for c := n.first; c != 0; c = d.nodes[c].next {
		if m := &d.nodes[c]; m.state != removed && !coversView(d.viewOf(c), w.Field(m.key), exact) {
			return false
		}
	}
	return true
}

func coversList(v, w View, exact bool) bool {
	n := v.Len()
	if n != w.Len() {
		return false
	}
	for i := range n {
		if !coversView(v.Index(i), w.Index(i), exact) {
			return false
		}
	}
	return true
}
