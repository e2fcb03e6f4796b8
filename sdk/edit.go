// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import "strings"

// The following rules apply to all setters. Maps on the path that are missing or null are created. The last segment
// of the path is a key, the index of an element to replace, or "-" to append to a list. A missing list is also
// created: "spec.tolerations.-" adds the first toleration or another one. The key "-" of a map is written "[-]".
// Setting an equal value is not an edit.

// SetString sets the string at path.
func (n Node) SetString(path, value string) { n.h.setString(path, value) }

// SetInt sets the integer at path.
func (n Node) SetInt(path string, value int64) { n.h.setInt(path, value) }

// SetFloat sets the floating-point number at path.
func (n Node) SetFloat(path string, value float64) { n.h.setFloat(path, value) }

// SetBool sets the boolean at path.
func (n Node) SetBool(path string, value bool) { n.h.setBool(path, value) }

// SetNull sets null at path.
func (n Node) SetNull(path string) { n.h.setNull(path) }

// SetMap sets a new empty map at path and returns its node.
func (n Node) SetMap(path string) Node { return Node{n.h.setMap(path)} }

// SetList sets a new empty list at path and returns its node.
func (n Node) SetList(path string) Node { return Node{n.h.setList(path)} }

// EnsureMap returns the map at path, and creates it if it is missing or null.
func (n Node) EnsureMap(path string) Node { return Node{n.h.ensureMap(path)} }

// SetJSON decodes a JSON text and sets the value at path.
func (n Node) SetJSON(path string, json []byte) { n.h.setJSON(path, json) }

// Copy sets a copy of source at path. Source may belong to the object, the context or the configuration. Its content
// is not copied into the plugin.
func (n Node) Copy(path string, source Node) { n.h.copy(path, source.h) }

// Remove removes the values at the paths and returns the number of removed values. A segment "*" matches every entry
// of a map or list. Missing values are ignored. All paths are removed in one call of the host.
func (n Node) Remove(paths ...string) int {
	if len(paths) == 1 {
		return n.h.remove(paths[0])
	}
	return n.h.remove(Paths(paths...))
}

// RemoveAt removes the element with the index i from a list.
func (n Node) RemoveAt(i int) { n.h.removeElem(i) }

// Paths joins paths into one argument for [Node.Remove]. A hook that runs often should store the result in a
// package-level variable.
func Paths(paths ...string) string { return strings.Join(paths, "\n") }

// Key returns key as a path segment in brackets. The key may contain any characters.
func Key(key string) string { return joinKey("", key) }

// joinKey appends a key to a path, in brackets.
func joinKey(path, key string) string {
	if strings.IndexByte(key, ']') >= 0 {
		key = strings.ReplaceAll(key, "]", "]]")
	}
	return Concat(path, "[", key, "]")
}
