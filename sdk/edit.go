// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import "strings"

// Setters create maps on the path that are missing or null. The last
// segment of path is a key, the index of an element to replace, or "-"
// to append to a list, which is created as well: "spec.tolerations.-"
// adds the first toleration or a further one. The key "-" of a map is
// written "[-]". Setting an equal value is no edit.

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

// SetMap sets a new empty map at path and returns it.
func (n Node) SetMap(path string) Node { return Node{n.h.setMap(path)} }

// SetList sets a new empty list at path and returns it.
func (n Node) SetList(path string) Node { return Node{n.h.setList(path)} }

// EnsureMap returns the map at path, and creates it if there is none.
func (n Node) EnsureMap(path string) Node { return Node{n.h.ensureMap(path)} }

// SetJSON decodes the JSON text and sets its value at path.
func (n Node) SetJSON(path string, json []byte) { n.h.setJSON(path, json) }

// Copy sets a copy of source at path. Source may belong to the object, the
// context or the configuration; its content does not enter the plugin.
func (n Node) Copy(path string, source Node) { n.h.copy(path, source.h) }

// Remove removes the values at the paths and returns the number of removed
// values. A segment "*" matches every entry of a map or list. Absent
// values are ignored. All paths are removed in one call into the host.
func (n Node) Remove(paths ...string) int {
	if len(paths) == 1 {
		return n.h.remove(paths[0])
	}
	return n.h.remove(Paths(paths...))
}

// RemoveAt removes element i of a list.
func (n Node) RemoveAt(i int) { n.h.removeElem(i) }

// Paths joins paths into one argument of [Node.Remove]. A hook that
// runs often should keep the result in a package-level variable.
func Paths(paths ...string) string { return strings.Join(paths, "\n") }

// Key returns key as a path segment in brackets. It may contain any characters.
func Key(key string) string { return joinKey("", key) }

// joinKey appends a verbatim key to a path.
func joinKey(path, key string) string {
	if strings.IndexByte(key, ']') >= 0 {
		key = strings.ReplaceAll(key, "]", "]]")
	}
	return Concat(path, "[", key, "]")
}
