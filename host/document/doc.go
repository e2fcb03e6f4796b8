// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package document lets plugins edit an object that others are reading.
//
// A reconciler's object lives in an informer's cache, shared with every other worker. Copying it costs more than most
// mutations (a pod is some hundred maps, slices and boxed values), and the cost grows with the object although the
// edits do not. A Document is a copy-on-write view instead. It keeps a small table of the nodes that were visited and
// of the values written to them. Reads look there first and in the shared base second. Only Value, called once at the
// end, builds new maps: those on the path to an edit. The rest of the result is shared with the base.
//
// The three types:
//
//   - Document owns the table. Reset reuses it without allocating. It is for one goroutine.
//   - Node is a place in the object: an entry of a map, an element of a list, a root. It stays valid when `spec` is
//     replaced: a Node of `spec` then has the new value. A removed node reads as absent, as does the zero Node, so
//     that chains of Field and Get need no checks in between.
//   - View is a value that was read from a path, without an entry in the table. Most reads return one.
//
// Paths are strings. A Document keeps the parsed form of frequently used paths, so that such a read costs only a lookup
// in each map on the path.
//
// Node numbers are the handles of the plugin ABI. Besides the object there are two read-only roots, the context and the
// plugin's configuration. The host mounts them, and they are read in the same way.
//
// Values have the types of unstructured objects: nil, bool, int64, float64, string, map[string]any and []any. They are
// compared by value; a float without a fraction equals the same int, as in JSON.
package document
