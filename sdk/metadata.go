// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import "strings"

// FilterMetadata removes the labels and annotations that the virtual node excludes from reflection. A plugin must call
// it only after it has read the labels and annotations, because excluded entries must still have an effect on the
// plugin. Entries of Refract itself are kept (see [StringMap.RemoveGlob]). If a map becomes empty, it stays as an empty
// map.
func FilterMetadata(ctx Context, obj Object) {
	obj.h.removeKeys("metadata.labels\nmetadata.annotations",
		ctx.root, "offloadingPatch.labelsNotReflected\noffloadingPatch.annotationsNotReflected")
}

// FilterLabels does the same as [FilterMetadata], but only for labels.
func FilterLabels(ctx Context, obj Object) {
	obj.h.removeKeys("metadata.labels", ctx.root, "offloadingPatch.labelsNotReflected")
}

// FilterAnnotations does the same as [FilterMetadata], but only for annotations.
func FilterAnnotations(ctx Context, obj Object) {
	obj.h.removeKeys("metadata.annotations", ctx.root, "offloadingPatch.annotationsNotReflected")
}

// Match reports whether s matches the glob. In the glob, * matches any characters and ? matches one byte.
func Match(glob, s string) bool {
	star, mark := -1, 0
	p, i := 0, 0
	for i < len(s) {
		switch {
		case p < len(glob) && glob[p] == '*':
			star, mark = p, i
			p++
		case p < len(glob) && (glob[p] == '?' || glob[p] == s[i]):
			p, i = p+1, i+1
		case star >= 0:
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(glob[p:], "*") == ""
}
