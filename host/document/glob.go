// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"strings"

	"github.com/refract-project/refract/host/document/fieldpath"
)

// maxGlobBytes is the maximum length of a glob. It limits the time of a match, and is far above the length of keys
// that an API server accepts.
const maxGlobBytes = 320

// pairWork is the work for each of many pairs of paths, in units of TakeWork.
const pairWork = 32

// RemoveKeysGlob removes the keys that match one of the globs from the map at path, and returns their number. The
// globs are separated by newlines. `*` matches any characters, and `?` matches one byte. There are no other
// wildcards, and a glob must match the whole key. If keep is not empty, keys with this prefix are not removed. If
// there is no map at path, nothing is removed, and no error is returned.
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

// RemoveKeysListed does the same as RemoveKeysGlob with the globs in a list of strings. The list is at a path below
// from, which may be in any root. A missing list matches no keys. Both paths and lists may contain several paths,
// separated by newlines. In this case, the first list applies to the first map, the second list to the second map,
// and so on.
func (n Node) RemoveKeysListed(paths string, from Node, lists, keep string) (int, error) {
	if len(paths) > maxPathsBytes || len(lists) > maxPathsBytes {
		return 0, newError(BadPath, "", "more than 64 KiB of paths")
	}
	if n.d == nil {
		return 0, nil
	}
	total := 0
	m, l := n.d.paths.Lines(paths), n.d.paths.Lines(lists)
	for m.More {
		count, err := n.removeListed(&m, from.id, &l, keep)
		total += count
		n.d.work += pairWork
		if err == nil && m.More != l.More {
			err = newError(BadPath, "", "it takes as many paths of lists as of maps")
		}
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (n Node) removeListed(maps *fieldpath.Lines, from int32, lists *fieldpath.Lines, keep string) (int, error) {
	r, err := n.d.nextRoute(lists)
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
	if r, err = n.d.nextRoute(maps); err != nil || n.id == 0 {
		return 0, err
	}
	return n.removeKeys(r, &globs)
}

// globList contains globs in one of two forms: a list or a text. The field of the other form is empty.
type globList struct {
	text string // globs separated by newlines
	list View
	keep string // keys with this prefix never match
}

func (n Node) removeKeys(r *fieldpath.Route, globs *globList) (int, error) {
	if n.ReadOnly() {
		return 0, readOnly(r.Text)
	}
	v, err := n.d.resolveRoute(n.id, r)
	if err != nil || !v.Exists() {
		return 0, err
	}
	if v.kind != Map {
		return 0, wrongKind(r.Text, v.kind, "a map")
	}
	if globs.isEmpty() {
		return 0, nil
	}
	if v.id != 0 {
		return n.d.removeMatching(v.id, globs)
	}
	// The node of the map is visited only when a key matches, because usually no key matches.
	id, total := int32(0), 0
	for key := range v.raw.(map[string]any) {
		match, err := n.d.matchesAny(key, globs)
		if match && id == 0 && err == nil {
			id, err = n.d.visitRoute(n.id, r)
		}
		if match && err == nil {
			_, err = n.d.removeEntry(id, fieldpath.Name{Owned: true, Text: key})
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
			_, err = d.removeEntry(id, fieldpath.Name{Text: d.keys[i]})
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

// Match reports whether the glob matches the whole of s. The time is at most proportional to the product of the
// lengths.
func Match(glob, s string) bool {
	g, i := 0, 0
	// star is the position of the last '*'. mark is the position in s at which the match continues if '*' must match
	// one more character.
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
