// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"math"
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

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

// Hash returns a hash of the object with its edits. Equal objects have the same hash on every machine and in every
// version of this package, because hashes are stored in annotations. The hash is not collision-resistant against
// attackers.
func (d *Document) Hash() uint64 { return d.Root().View().Hash() }

// Hash returns the hash of a plain value; see Document.Hash.
func Hash(v any) uint64 { return rawView(v).Hash() }

// Hash returns the hash of the value; see Document.Hash. An absent value also has a hash.
func (v View) Hash() uint64 {
	switch v.kind {
	case String:
		s, _ := v.Text()
		return mixHashes(uint64(String), xxhash.Sum64String(s))
	case Int:
		i, _ := v.Int()
		return mixHashes(uint64(Int), uint64(i))
	case Float:
		return hashFloat(v)
	case Bool:
		b, _ := v.Bool()
		if b {
			return mixHashes(uint64(Bool), 1)
		}
		return mixHashes(uint64(Bool), 0)
	case Map:
		return hashMap(v)
	case List:
		h := uint64(List)
		for i := range v.Len() {
			h = mixHashes(h, v.Index(i).Hash())
		}
		return h
	}
	return mixHashes(uint64(v.kind), 0)
}

// hashFloat returns the hash of a float. A float without a fraction has the hash of the equal int.
func hashFloat(v View) uint64 {
	f, _ := v.Float()
	if i, ok := wholeNumber(f); ok {
		return mixHashes(uint64(Int), uint64(i))
	}
	return mixHashes(uint64(Float), math.Float64bits(f))
}

// hashMap returns the sum of the entries' hashes, because the order of entries does not matter.
func hashMap(v View) uint64 {
	var sum uint64
	if v.id == 0 {
		for k, e := range v.raw.(map[string]any) {
			sum += hashEntry(k, rawView(e))
		}
		return mixHashes(uint64(Map), sum)
	}
	if v.id < 0 {
		for k, e := range v.fields {
			sum += hashEntry(k, e)
		}
		return mixHashes(uint64(Map), sum)
	}
	d, n := v.d, &v.d.nodes[v.id]
	for k, e := range n.baseFields() {
		if n.first == 0 || d.visitedChild(v.id, k) == 0 {
			sum += hashEntry(k, rawView(e))
		}
	}
	for c := n.first; c != 0; c = d.nodes[c].next {
		if m := &d.nodes[c]; m.state != removed {
			sum += hashEntry(m.key, d.viewOf(c))
		}
	}
	return mixHashes(uint64(Map), sum)
}

func hashEntry(key string, v View) uint64 { return mixHashes(xxhash.Sum64String(key), v.Hash()) }

// mixHashes combines two hashes. Their order matters.
func mixHashes(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^0x9e3779b97f4a7c15, b^0xd6e8feb86659fd93)
	return bits.RotateLeft64(hi^lo, 23) + a*0x2545f4914f6cdd1d + b
}
