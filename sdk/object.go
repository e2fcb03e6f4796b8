// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"iter"
	"strings"
)

// Object is the object that a hook mutates.
type Object struct{ Node }

// Kind returns the object's kind, such as "Pod".
func (o Object) Kind() string { return o.String("kind") }

// APIVersion returns the object's group and version, such as "apps/v1".
func (o Object) APIVersion() string { return o.String("apiVersion") }

// Name returns the object's name.
func (o Object) Name() string { return o.String("metadata.name") }

// Namespace returns the object's namespace.
func (o Object) Namespace() string { return o.String("metadata.namespace") }

// Labels returns the object's labels. If there are none, the map is empty.
func (o Object) Labels() StringMap { return StringMap{o.h, "metadata.labels"} }

// Annotations returns the object's annotations. If there are none, the map is empty.
func (o Object) Annotations() StringMap { return StringMap{o.h, "metadata.annotations"} }

// StringMap refers to a map from strings to strings in an object. The methods read the map in the object each time
// they are called. A missing map counts as empty.
type StringMap struct {
	h    handle
	path string
}

// Strings returns the string map at path.
func (n Node) Strings(path string) StringMap { return StringMap{n.h, path} }

// Get returns the value of key, or "" if the key does not exist.
func (m StringMap) Get(key string) string {
	s, _ := m.h.str(joinKey(m.path, key))
	return s
}

// Lookup returns the value of key, and reports whether it exists.
func (m StringMap) Lookup(key string) (string, bool) { return m.h.str(joinKey(m.path, key)) }

// Has reports whether key exists.
func (m StringMap) Has(key string) bool { return m.h.kind(joinKey(m.path, key)) != KindAbsent }

// Is reports whether the value of key equals want.
func (m StringMap) Is(key, want string) bool { return m.h.strEq(joinKey(m.path, key), want) }

// Len returns the number of entries.
func (m StringMap) Len() int { return m.h.length(m.path) }

// Keys returns the sorted keys.
func (m StringMap) Keys() []string { return m.h.keys(m.path) }

// All iterates over keys and values in the order of the keys.
func (m StringMap) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, key := range m.Keys() {
			if !yield(key, m.Get(key)) {
				return
			}
		}
	}
}

// Set sets the value of key.
func (m StringMap) Set(key, value string) { m.h.setString(joinKey(m.path, key), value) }

// Remove removes a key and reports whether it existed.
func (m StringMap) Remove(key string) bool { return m.h.remove(joinKey(m.path, key)) > 0 }

// RemovePrefix removes all keys with the prefix and returns the number of removed keys.
func (m StringMap) RemovePrefix(prefix string) int {
	return m.removeWhere(func(key string) bool { return strings.HasPrefix(key, prefix) })
}

// RemoveGlob removes every key that matches one of the globs and returns the number of removed keys. In a glob, *
// matches any characters and ? matches one byte. An argument may contain several globs, one per line. Keys of the
// form offloading.liqo.io/* are never removed, because they record the owner of a copy.
func (m StringMap) RemoveGlob(globs ...string) int {
	return m.h.removeGlob(m.path, strings.Join(globs, "\n"))
}

// RemoveListed does the same as [StringMap.RemoveGlob], with the globs in a list of strings. path is the path of the
// list below from, which may be a node of the configuration, for example. If the list is missing, no keys are
// removed.
func (m StringMap) RemoveListed(from Node, path string) int {
	return m.h.removeKeys(m.path, from.h, path)
}

// Prune removes the map itself if it is empty, so that an object that has lost its last label is not reflected with
// an empty map. Call it after a removal.
func (m StringMap) Prune() {
	if m.h.length(m.path) == 0 {
		m.h.remove(m.path)
	}
}

func (m StringMap) removeWhere(match func(key string) bool) int {
	removed := 0
	for _, key := range m.Keys() {
		if match(key) && m.Remove(key) {
			removed++
		}
	}
	return removed
}
