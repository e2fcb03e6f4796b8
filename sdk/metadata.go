// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package sdk

import "strings"

// systemPrefix begins the labels and annotations by which the clusters know
// whose a copy is.
const systemPrefix = "offloading.liqo.io/"

// FilterMetadata removes the labels and annotations that the virtual node does
// not want reflected. Every default plugin begins with it; a plugin that
// replaces one should too. The system's own offloading.liqo.io/* entries stay,
// whatever the lists say: they hold the ownership of the copy.
func FilterMetadata(ctx Context, obj Object) {
	patch := ctx.OffloadingPatch()
	if !patch.Exists() {
		return
	}
	obj.Labels().filter(patch.Get("labelsNotReflected"))
	obj.Annotations().filter(patch.Get("annotationsNotReflected"))
}

// filter removes the listed keys except the system's own.
func (m StringMap) filter(globs Node) {
	if !globs.Exists() {
		return
	}
	removed := 0
	if keys := m.Keys(); anySystemKey(keys) {
		removed = m.filterOneByOne(keys, globs)
	} else {
		removed = m.RemoveListed(globs)
	}
	if removed > 0 {
		m.Prune()
	}
}

func (m StringMap) filterOneByOne(keys []string, globs Node) (removed int) {
	for i := range globs.Len("") {
		pattern := globs.At(i).String("")
		for _, key := range keys {
			if !strings.HasPrefix(key, systemPrefix) && Match(pattern, key) && m.Remove(key) {
				removed++
			}
		}
	}
	return removed
}

func anySystemKey(keys []string) bool {
	for _, key := range keys {
		if strings.HasPrefix(key, systemPrefix) {
			return true
		}
	}
	return false
}

// Match reports whether s matches a glob, in which * stands for any characters
// and ? for one byte.
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
