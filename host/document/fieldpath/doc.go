// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package fieldpath parses the paths of fields that plugins and manifests use, such as `spec.ports[0].name`,
// `metadata.annotations[liqo.io/skip-reflection]` and `spec.ports.*.nodePort`.
//
// A segment of a path is a key of a map or a position in a list. Segments are separated by dots. A key that has dots or
// brackets is written in brackets, in which `]]` means `]`. In operations that remove values, the segment `*` matches
// every entry. The segment `-` appends to a list.
//
// There are two parsed forms. A Path is a list of segments without wildcards, which is independent of the text. A Route
// is for a single use: its segments are parts of the text, which may be in the memory of a guest. A Cache has the
// routes of the texts that are used often.
package fieldpath
