// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fieldpath

import "strings"

// Lines iterates over the paths in a text, which are separated by newlines. The whole text was parsed before, or each
// path is parsed when it is reached.
type Lines struct {
	More  bool // there is another path
	cache *Cache
	known []Route
	rest  string
}

// Lines returns an iterator that begins at the first path of a text.
func (c *Cache) Lines(text string) Lines {
	s := c.slotOf(text)
	k := s.known
	if k != nil && k.text == text && k.lines {
		s.credit = maxCredit
	} else if k = s.learnText(text, true); k == nil {
		return Lines{More: true, cache: c, rest: text}
	}
	return Lines{More: true, cache: c, known: k.routes}
}

// Next returns the next path. The result is valid until the next call of Next or Cache.Route. Next may be called only
// while More is true.
func (l *Lines) Next() (*Route, error) {
	if l.known != nil {
		r := &l.known[0]
		l.known = l.known[1:]
		l.More = len(l.known) > 0
		return r, nil
	}
	var path string
	path, l.rest, l.More = strings.Cut(l.rest, "\n")
	err := l.cache.scratch.parsePath(path, false)
	return &l.cache.scratch, err
}
