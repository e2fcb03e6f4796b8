// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package document lets plugins edit an object that other goroutines are reading.
//
// A reconciler's object is in an informer's cache, which all workers share. Copying the object would cost more than
// most mutations, because a pod consists of some hundred maps, slices and boxed values, and the cost would grow with
// the object although the edits do not. Therefore a Document is a copy-on-write view. It has a small table of the
// nodes that were visited and of the values that were written to them. A read looks in this table first, and then in
// the shared base. New maps are built only by Value, which is called once at the end, and only on the paths to edits.
// The rest of the result is shared with the base.
//
// The three types:
//
//   - Document owns the table. Reset reuses the table without allocating. A Document is for one goroutine.
//   - Node is a place in the object: an entry of a map, an element of a list, a root. It stays valid when `spec` is
//     replaced: a Node of `spec` then has the new value. A removed node, like the zero Node, has an absent value, so
//     that chains of Field and Get need no checks in between.
//   - View is a value that was read from a path. It has no entry in the table. Most reads return a View.
//
// Paths are strings (package fieldpath). A Document keeps the parsed form of frequently used paths, so that such a read
// costs only a lookup in each map on the path.
//
// Commit separates the edits of one plugin of a chain from the edits of the next. The table stays. After Commit, the
// state of a node is logged before its first change. Edits compares nodes with their logged state, Base reads the
// logged state, and Rollback restores it. A plugin that makes no changes causes no work.
//
// The handles of the plugin ABI are node numbers. In addition to the object, there are two read-only roots, the
// context and the plugin's configuration, which the host mounts. Plugins read these roots with the same functions as
// the object.
//
// Values have the types of unstructured objects: nil, bool, int64, float64, string, map[string]any and []any. Values
// are compared by content: a float without a fraction equals the int of the same value, as in JSON.
package document
