// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import "strings"

// maxGlobBytes is far above any key that an API server accepts, and keeps the cost of one match small.
const maxGlobBytes = 320

// RemoveKeysGlob removes from the map at path each key that matches one of the globs, which are separated by newlines, and
// tells how many went. `*` stands for any characters, `?` for one byte; there are no other special ones, and the whole
// key must match. No map at path is no error.
func (n Node) RemoveKeysGlob(path, globs string) (int, error) {
	return n.removeKeys(path, globs, View{})
}

// RemoveKeysListed is RemoveKeysGlob with the globs in a list of strings; an absent list matches nothing.
func (n Node) RemoveKeysListed(path string, list View) (int, error) {
	if list.Exists() && list.kind != List {
		return 0, wrongKind("", list.kind, "a list of globs")
	}
	return n.removeKeys(path, "", list)
}

func (n Node) removeKeys(path, globs string, list View) (int, error) {
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
		return n.d.removeMatching(v.id, globs, list)
	}
	// Most often nothing matches: no place is visited before something does.
	id, total := int32(0), 0
	for key := range v.raw.(map[string]any) {
		match, err := n.d.matches(key, globs, list)
		if match && id == 0 && err == nil {
			id, err = n.d.visit(n.id, path)
		}
		if match && err == nil {
			_, err = n.d.removeField(id, key, scanner{})
			total++
		}
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (d *Document) removeMatching(id int32, globs string, list View) (total int, err error) {
	start := len(d.keys)
	d.keys = d.appendKeys(d.keys, id)
	end := len(d.keys)
	for i := start; i < end && err == nil; i++ {
		var match bool
		if match, err = d.matches(d.keys[i], globs, list); match {
			_, err = d.removeField(id, d.keys[i], scanner{})
			total++
		}
	}
	clear(d.keys[start:])
	d.keys = d.keys[:start]
	return total, err
}

// matches tries the globs of both forms; one of the two is empty.
func (d *Document) matches(key, globs string, list View) (bool, error) {
	for globs != "" {
		var glob string
		glob, globs, _ = strings.Cut(globs, "\n")
		if match, err := d.match(glob, key); match || err != nil {
			return match, err
		}
	}
	for i := range list.Len() {
		glob, ok := list.Index(i).Text()
		if !ok {
			return false, wrongKind("", list.Index(i).kind, "a glob")
		}
		if match, err := d.match(glob, key); match || err != nil {
			return match, err
		}
	}
	return false, nil
}

func (d *Document) match(glob, key string) (bool, error) {
	if len(glob) > maxGlobBytes {
		return false, fail(BadValue, glob, "a glob longer than 320 bytes")
	}
	if glob == "" {
		return false, nil
	}
	return Match(glob, key), d.toil(1 + int64(len(key))*int64(len(glob))/64)
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
