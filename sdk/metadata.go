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
// whatever the lists say: they hold the ownership of a copy.
func FilterMetadata(ctx Context, obj Object) {
	labels := Node{ctx.root.get("offloadingPatch.labelsNotReflected")}
	annotations := Node{ctx.root.get("offloadingPatch.annotationsNotReflected")}
	if !labels.Exists() && !annotations.Exists() {
		return
	}
	keys := obj.Labels().Keys()
	if anySystemKey(keys) { // the object is a copy itself, of a third cluster's
		obj.Labels().filterOneByOne(labels)
		obj.Annotations().filterOneByOne(annotations)
		return
	}
	if removed := obj.Labels().RemoveListed(labels); removed > 0 && removed == len(keys) {
		obj.Labels().Prune()
	}
	if obj.Annotations().RemoveListed(annotations) > 0 {
		obj.Annotations().Prune()
	}
}

// filterOneByOne removes the keys that match, but for the system's own.
func (m StringMap) filterOneByOne(globs Node) {
	keys := m.Keys()
	for i := range globs.Len("") {
		pattern := globs.At(i).String("")
		for _, key := range keys {
			if !strings.HasPrefix(key, systemPrefix) && Match(pattern, key) {
				m.Remove(key)
			}
		}
	}
	m.Prune()
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
