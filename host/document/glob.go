// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import "strings"

// maxGlobBytes is far above the length of keys that an API server accepts, and limits the cost of a match.
const maxGlobBytes = 320

// pairWork is the work of one of many pairs of paths, in units of TakeWork.
const pairWork = 32

// RemoveKeysGlob removes from the map at path each key that matches one of the globs, which are separated by newlines,
// and returns the number of removed keys. `*` matches any characters and `?` one byte; there are no other wildcards,
// and the whole key must match. Keys with the prefix keep are not removed, unless keep is empty. It is no error if
// there is no map at path.
func (n Node) RemoveKeysGlob(path, globs, keep string) (int, error) {
	if n.id == 0 {
		return 0, checkPath(path)
	}
	r, err := n.d.routeOf(path)
	if err != nil {
		return 0, err
	}
	return n.removeKeys(r, &globList{text: globs, keep: keep})
}

// RemoveKeysListed is RemoveKeysGlob with the globs in a list of strings at a path below from, which may be in any
// root. An absent list matches no key. Both may be several paths, separated by newlines: the first list applies to the
// first map, and so on.
func (n Node) RemoveKeysListed(paths string, from Node, lists, keep string) (int, error) {
	if len(paths) > maxPathsBytes || len(lists) > maxPathsBytes {
		return 0, newError(BadPath, "", "more than 64 KiB of paths")
	}
	if n.d == nil {
		return 0, nil
	}
	total := 0
	var m, l lines
	m.openText(n.d, paths)
	l.openText(n.d, lists)
	for m.more {
		count, err := n.removeListed(&m, from.id, &l, keep)
		total += count
		n.d.work += pairWork
		if err == nil && m.more != l.more {
			err = newError(BadPath, "", "it takes as many paths of lists as of maps")
		}
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (n Node) removeListed(maps *lines, from int32, lists *lines, keep string) (int, error) {
	r, err := lists.nextRoute(n.d)
	globs := globList{keep: keep}
	if err == nil && from != 0 {
		globs.list, err = n.d.resolveRoute(from, r)
	}
	if err != nil {
		return 0, err
	}
	if list := &globs.list; list.Exists() && list.kind != List {
		return 0, wrongKind("", list.kind, "a list of globs")
	}
	if r, err = maps.nextRoute(n.d); err != nil || n.id == 0 {
		return 0, err
	}
	return n.removeKeys(r, &globs)
}

// globList has globs in one of two forms; the other is empty.
type globList struct {
	text string // separated by newlines
	list View
	keep string // prefix of keys that never match
}

func (n Node) removeKeys(r *route, globs *globList) (int, error) {
	if n.ReadOnly() {
		return 0, readOnly(r.text)
	}
	v, err := n.d.resolveRoute(n.id, r)
	if err != nil || !v.Exists() {
		return 0, err
	}
	if v.kind != Map {
		return 0, wrongKind(r.text, v.kind, "a map")
	}
	if globs.isEmpty() {
		return 0, nil
	}
	if v.id != 0 {
		return n.d.removeMatching(v.id, globs)
	}
	// Usually no key matches, so the node is visited only for a match.
	id, total := int32(0), 0
	for key := range v.raw.(map[string]any) {
		match, err := n.d.matchesAny(key, globs)
		if match && id == 0 && err == nil {
			id, err = n.d.visitRoute(n.id, r)
		}
		if match && err == nil {
			_, err = n.d.removeEntry(id, name{key, true})
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
		if match, err = d.matchesAny(d.keys[i], globs); match {
			_, err = d.removeEntry(id, name{text: d.keys[i]})
			total++
		}
	}
	clear(d.keys[start:])
	d.keys = d.keys[:start]
	return total, err
}

func (d *Document) matchesAny(key string, globs *globList) (match bool, err error) {
	for text := globs.text; text != "" && !match && err == nil; {
		var glob string
		glob, text, _ = strings.Cut(text, "\n")
		match, err = d.matchGlob(glob, key)
	}
	for i, n := 0, globs.list.Len(); i < n && !match && err == nil; i++ {
		element := globs.list.Index(i)
		glob, ok := element.Text()
		if !ok {
			return false, wrongKind("", element.kind, "a glob")
		}
		match, err = d.matchGlob(glob, key)
	}
	return match && !globs.keepsKey(key), err
}

func (g *globList) isEmpty() bool { return g.text == "" && g.list.Len() == 0 }

func (g *globList) keepsKey(key string) bool { return g.keep != "" && strings.HasPrefix(key, g.keep) }

func (d *Document) matchGlob(glob, key string) (bool, error) {
	if len(glob) > maxGlobBytes {
		return false, newError(BadValue, glob, "a glob longer than 320 bytes")
	}
	if err := d.addWork(workEntry + int64(len(key))*int64(len(glob))/8); err != nil || glob == "" {
		return false, err
	}
	return Match(glob, key), nil
}

// Match reports whether the glob matches the whole of s. The cost is at most the product of the lengths.
func Match(glob, s string) bool {
	g, i := 0, 0
	// star is the last '*', and mark the position in s at which it is retried with one more character.
	star, mark := -1, 0
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
