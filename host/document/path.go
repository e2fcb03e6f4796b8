// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"strconv"
	"strings"
)

// MaxPathBytes is the longest path accepted.
const MaxPathBytes = 1024

// Segment is one step of a Path: a key of a map, or (Index >= 0) a position in a list.
type Segment struct {
	Key   string
	Index int
}

// Path leads from the object's root to a node.
type Path []Segment

// String writes the path the way plugins do: `spec.ports[0].name`, `metadata.annotations[liqo.io/skip-reflection]`.
func (p Path) String() string {
	var b strings.Builder
	for i, s := range p {
		switch {
		case s.Index >= 0:
			b.WriteString("[" + strconv.Itoa(s.Index) + "]")
		case plainKey(s.Key):
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(s.Key)
		default:
			b.WriteString("[" + strings.ReplaceAll(s.Key, "]", "]]") + "]")
		}
	}
	return b.String()
}

func plainKey(k string) bool {
	return k != "" && k != "*" && k != "-" && !strings.ContainsAny(k, ".[]\n/")
}

// ParsePath reads a path such as a manifest's `writes` entry. Every segment is a key; `*` stands for any key or index
// and is kept as such.
func ParsePath(path string) (Path, error) {
	var out Path
	for s := newScanner(path); !s.done(); {
		if !s.next() {
			return nil, s.err()
		}
		out = append(out, Segment{Key: strings.Clone(s.text), Index: -1})
	}
	return out, nil
}

// scanner walks over the segments of a path without allocating (but for `]]` in a verbatim key). After next the segment is
// in text; false means that the path is malformed, and err tells how.
type scanner struct {
	path     string
	pos      int
	text     string
	verbatim bool // it was written in brackets
	problem  string
}

func newScanner(path string) scanner { return scanner{path: path} }

func (s *scanner) done() bool { return s.pos >= len(s.path) }

func (s *scanner) err() error { return fail(BadPath, s.path, s.problem) }

func (s *scanner) bad(problem string) bool {
	s.problem = problem
	return false
}

// wildcard tells `*`, which only removals take.
func (s *scanner) wildcard() bool { return len(s.text) == 1 && s.text[0] == '*' && !s.verbatim }

func noWildcard(path string) error {
	return fail(BadPath, path, "only removals take the wildcard * (the key is written [*])")
}

// next reads the segment at pos and moves behind it and behind a '.' that follows.
func (s *scanner) next() bool {
	path, start := s.path, s.pos
	i := start
	for ; i < len(path); i++ {
		c := path[i]
		if c > ']' { // most letters
			continue
		}
		if c == '.' {
			s.text, s.verbatim, s.pos = path[start:i], false, i+1
			if i == start || i+1 == len(path) {
				return s.bad("empty segment")
			}
			return true
		}
		if c == '[' || c == ']' {
			break
		}
	}
	if i < len(path) && (i == start || path[i] == ']') {
		return s.bracket(i)
	}
	s.text, s.verbatim, s.pos = path[start:i], false, i
	return true
}

// bracket reads `[key]`, where `]]` stands for `]`.
func (s *scanner) bracket(at int) bool {
	if s.path[at] == ']' {
		return s.bad("stray ']' (a key with brackets is written [like]]this])")
	}
	start, escaped := at+1, false
	for i := start; i < len(s.path); i++ {
		n := strings.IndexByte(s.path[i:], ']')
		if n < 0 {
			break
		}
		if i += n; i+1 < len(s.path) && s.path[i+1] == ']' {
			escaped = true
			i++
			continue
		}
		s.text, s.verbatim, s.pos = s.path[start:i], true, i+1
		if escaped {
			s.text = strings.ReplaceAll(s.text, "]]", "]")
		}
		return s.separator()
	}
	return s.bad("'[' without ']'")
}

// separator passes over the '.' behind a bracket; another bracket needs none.
func (s *scanner) separator() bool {
	if s.done() || s.path[s.pos] == '[' {
		return true
	}
	if s.path[s.pos] != '.' {
		return s.bad("no '.' after ']'")
	}
	if s.pos++; s.done() {
		return s.bad("empty segment")
	}
	return true
}

// finish reads the rest of a path that leads nowhere: it may still be malformed.
func (s *scanner) finish() error {
	for !s.done() {
		if !s.next() {
			return s.err()
		}
	}
	return nil
}

// index reads a decimal list position; -1 when it is none.
func index(text string) int {
	if text == "" || len(text) > 9 {
		return -1
	}
	n := 0
	for i := 0; i < len(text); i++ {
		c := text[i] - '0'
		if c > 9 {
			return -1
		}
		n = n*10 + int(c)
	}
	return n
}
