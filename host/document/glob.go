// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import "strings"

// maxGlobBytes is far above any key that an API server accepts, and keeps the cost of one match small.
const maxGlobBytes = 320

// RemoveKeysGlob removes from the map at path each key that matches one of the globs, which are separated by newlines, and
// tells how many went. `*` stands for any characters, `?` for one byte; there are no other special ones, and the whole
// key must match. Keys that begin with keep stay, unless it is empty. No map at path is no error.
func (n Node) RemoveKeysGlob(path, globs, keep string) (int, error) {
	return n.removeKeys(path, &globList{text: globs, keep: keep})
}

// RemoveKeysListed is RemoveKeysGlob with the globs in a list of strings; an absent list matches nothing.
func (n Node) RemoveKeysListed(path string, list View, keep string) (int, error) {
	if list.Exists() && list.kind != List {
		return 0, wrongKind("", list.kind, "a list of globs")
	}
	return n.removeKeys(path, &globList{list: list, keep: keep})
}

// globList is globs in one of two forms, of which the other is empty.
type globList struct {
	text string // separated by newlines
	list View
	keep string // prefix of keys that never match
}

func (n Node) removeKeys(path string, globs *globList) (int, error) {
	if n.ReadOnly() {
		return 0, readOnly(path)
	}
	v, err := n.At(path)
	if err != nil || !v.Exists() {
		return 0, err
	}
	if v.kind != Map {
		return 0, wrongKind(path, v.kind, "a map")
	}
	if v.id != 0 {
		return n.d.removeMatching(v.id, globs)
	}
	if globs.empty() {
		return 0, nil
	}
	// Most often nothing matches: no place is visited before something does.
	id, total := int32(0), 0
	for key := range v.raw.(map[string]any) {
		match, err := n.d.matches(key, globs)
		if match && id == 0 && err == nil {
			id, err = n.d.visit(n.id, path)
		}
		if match && err == nil {
			_, err = n.d.removeField(id, key, &scanner{})
			total++
		}
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (d *Document) removeMatching(id int32, globs *globList) (total int, err error) {
	start := len(d.keys)
	d.keys = d.appendKeys(d.keys, id)
	end := len(d.keys)
	for i := start; i < end && err == nil; i++ {
		var match bool
		if match, err = d.matches(d.keys[i], globs); match {
			_, err = d.removeField(id, d.keys[i], &scanner{})
			total++
		}
	}
	clear(d.keys[start:])
	d.keys = d.keys[:start]
	return total, err
}

func (d *Document) matches(key string, globs *globList) (match bool, err error) {
	for text := globs.text; text != "" && !match && err == nil; {
		var glob string
		glob, text, _ = strings.Cut(text, "\n")
		match, err = d.match(glob, key)
	}
	for i, n := 0, globs.list.Len(); i < n && !match && err == nil; i++ {
		element := globs.list.Index(i)
		glob, ok := element.Text()
		if !ok {
			return false, wrongKind("", element.kind, "a glob")
		}
		match, err = d.match(glob, key)
	}
	return match && !globs.keeps(key), err
}

func (g *globList) empty() bool { return g.text == "" && g.list.Len() == 0 }

func (g *globList) keeps(key string) bool { return g.keep != "" && strings.HasPrefix(key, g.keep) }

func (d *Document) match(glob, key string) (bool, error) {
	if len(glob) > maxGlobBytes {
		return false, fail(BadValue, glob, "a glob longer than 320 bytes")
	}
	if err := d.toil(1 + int64(len(key))*int64(len(glob))/64); err != nil || glob == "" {
		return false, err
	}
	return Match(glob, key), nil
}

// Match tells whether the glob describes the whole of s. Its cost is at most the product of the lengths.
func Match(glob, s string) bool {
	g, i := 0, 0
	star, mark := -1, 0 // where to take up again when a '*' must take one more
	for i < len(s) {
		switch {
		case g < len(glob) && glob[g] == '*':
			star, mark = g, i
			g++
		case g < len(glob) && (glob[g] == '?' || glob[g] == s[i]):
			g++
			i++
		case star >= 0:
			mark++
			g, i = star+1, mark
		default:
			return false
		}
	}
	for g < len(glob) && glob[g] == '*' {
		g++
	}
	return g == len(glob)
}
