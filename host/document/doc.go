// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package document lets plugins edit an object that others are reading.
//
// The object of a reconcile lies in an informer's cache, shared with every other worker. Copying it first costs more than
// most mutations (a pod is some hundred maps, slices and boxed values), and grows with the object although the edits do
// not. A Document is a copy-on-write view instead: it keeps a small table of the places that were visited and what was
// written to them, reads look there first and in the shared base second, and only Value, called once at the end, builds new
// maps: those on the way to an edit. All else of the result is the base's own.
//
// The three types:
//
//   - Document owns the table. It is reused through Reset and then allocates nothing; it is for one goroutine.
//   - Node names a place: an entry of a map, an element of a list, a root. It stays a place: after `spec` was replaced, a
//     Node of `spec` sees the new value. A removed place reads as absent, as does the zero Node, so that chains of Field
//     and Get need no checks in between.
//   - View is what a read of a path gives: the value, without an entry in the table. Most reads are of this form.
//
// Paths are texts. A Document keeps those that it is asked for again and again taken apart, so that what is left of a read
// is a lookup in each map on the way.
//
// Node numbers are what the plugin ABI calls handles. Besides the object there are two read-only roots, the context and
// the plugin's configuration, mounted by the host and read the same way.
//
// Values are those of unstructured objects: nil, bool, int64, float64, string, map[string]any and []any. They are compared
// by value; a float without a fraction equals the same int, as it does in JSON.
package document
