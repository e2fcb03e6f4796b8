// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import "iter"

// Kind is the type of a value.
type Kind int

// Kinds of values. KindAbsent means that the value is missing.
const (
	KindAbsent Kind = iota
	KindNull
	KindBool
	KindInt
	KindFloat
	KindString
	KindMap
	KindList
)

// String returns the name of the kind as in YAML.
func (k Kind) String() string {
	names := [...]string{"absent", "null", "boolean", "integer", "float", "string", "map", "list"}
	if k < 0 || int(k) >= len(names) {
		return "unknown"
	}
	return names[k]
}

// Node refers to a value of the object, the context or the configuration. It is valid until the hook returns. In all
// methods, a path is relative to the node, and the empty path means the node itself.
type Node struct{ h handle }

// Exists reports whether the value exists. A null value also exists.
func (n Node) Exists() bool { return !n.h.isZero() }

// Kind returns the type of the value at path.
func (n Node) Kind(path string) Kind { return n.h.kind(path) }

// Has reports whether the value at path exists and is not null.
func (n Node) Has(path string) bool { return n.h.kind(path) > KindNull }

// Len returns the number of entries of a map or list, or the number of bytes of a string. For an absent value it
// returns 0.
func (n Node) Len(path string) int { return n.h.length(path) }

// Get returns the node at path.
func (n Node) Get(path string) Node { return Node{n.h.get(path)} }

// Field returns the entry of a map with exactly this key. The key is not parsed as a path.
func (n Node) Field(key string) Node { return Node{n.h.field(key)} }

// At returns the element of a list with the index i. If the list is shorter, it returns a Node that does not exist.
func (n Node) At(i int) Node { return Node{n.h.elem(i)} }

// String returns the string at path, or "" if it is absent or null. The string is valid until the hook returns.
func (n Node) String(path string) string {
	s, _ := n.h.str(path)
	return s
}

// Lookup returns the string at path, and reports whether it exists.
func (n Node) Lookup(path string) (string, bool) { return n.h.str(path) }

// Is reports whether the string at path equals want. It does not copy the string into the plugin.
func (n Node) Is(path, want string) bool { return n.h.strEq(path, want) }

// Int returns the integer at path, or fallback if it is absent or null.
func (n Node) Int(path string, fallback int64) int64 { return n.h.integer(path, fallback) }

// Float returns the number at path, or fallback if it is absent or null.
func (n Node) Float(path string, fallback float64) float64 { return n.h.float(path, fallback) }

// Bool returns the boolean at path, or fallback if it is absent or null.
func (n Node) Bool(path string, fallback bool) bool { return n.h.boolean(path, fallback) }

// True reports whether the boolean at path exists and is true.
func (n Node) True(path string) bool { return n.h.boolean(path, false) }

// Keys returns the sorted keys of the map at path. They are valid until the hook returns.
func (n Node) Keys(path string) []string { return n.h.keys(path) }

// JSON returns the value at path as JSON, or nil if it is absent. The result is valid until the hook returns. To
// decode it into a Go type, use [Decode].
func (n Node) JSON(path string) []byte { return n.h.json(path) }

// Elements iterates over a list. Elements must not be inserted or removed during the iteration. In a hook that runs
// often, the following loop is faster,
//
//	for i := range list.Len("") { element := list.At(i) … }
//
// because TinyGo allocates the iterator.
func (n Node) Elements() iter.Seq2[int, Node] {
	return func(yield func(int, Node) bool) {
		for i := 0; ; i++ {
			e := n.At(i)
			if !e.Exists() || !yield(i, e) {
				return
			}
		}
	}
}

// Entries iterates over a map in the order of its keys.
func (n Node) Entries() iter.Seq2[string, Node] {
	return func(yield func(string, Node) bool) {
		for _, key := range n.Keys("") {
			if !yield(key, n.Field(key)) {
				return
			}
		}
	}
}
