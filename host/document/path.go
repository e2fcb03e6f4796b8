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
		out = append(out, Segment{Key: strings.Clone(s.text()), Index: -1})
	}
	return out, nil
}

// scanner walks over the segments of a path without allocating (but for `]]` in a verbatim key). After next the segment is
// text(); false means that the path is malformed, and err tells how. It is small because removals copy it a lot.
type scanner struct {
	path     string
	pos      int32 // of the next segment
	from, to int32 // the segment
	verbatim bool  // it was written in brackets
	escaped  bool  // and has ]] in it
	problem  problem
}

type problem uint8

const (
	emptySegment problem = iota + 1
	strayBracket
	openBracket
	noDot
)

var problems = [...]string{
	emptySegment: "empty segment",
	strayBracket: "stray ']' (a key with brackets is written [like]]this])",
	openBracket:  "'[' without ']'",
	noDot:        "no '.' after ']'",
}

func newScanner(path string) scanner { return scanner{path: path} }

func (s *scanner) done() bool { return int(s.pos) >= len(s.path) }

func (s *scanner) err() error { return fail(BadPath, s.path, problems[s.problem]) }

func (s *scanner) bad(p problem) bool {
	s.problem = p
	return false
}

// text is the segment.
func (s *scanner) text() string {
	if s.escaped {
		return s.unescaped()
	}
	return s.path[s.from:s.to]
}

func (s *scanner) unescaped() string { return strings.ReplaceAll(s.path[s.from:s.to], "]]", "]") }

// wildcard tells `*`, which only removals take.
func (s *scanner) wildcard() bool { return s.to-s.from == 1 && s.path[s.from] == '*' && !s.verbatim }

func noWildcard(path string) error {
	return fail(BadPath, path, "only removals take the wildcard * (the key is written [*])")
}

// next reads the segment at pos and moves behind it and behind a '.' that follows.
func (s *scanner) next() bool {
	path, start := s.path, int(s.pos)
	i := start
	for ; i < len(path); i++ {
		c := path[i]
		if c > ']' { // most letters
			continue
		}
		if c == '.' {
			s.plain(start, i, i+1)
			if i == start || i+1 == len(path) {
				return s.bad(emptySegment)
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
	s.plain(start, i, i)
	return true
}

func (s *scanner) plain(from, to, next int) {
	s.from, s.to, s.pos = int32(from), int32(to), int32(next)
	s.verbatim, s.escaped = false, false
}

// bracket reads `[key]`, where `]]` stands for `]`.
func (s *scanner) bracket(at int) bool {
	if s.path[at] == ']' {
		return s.bad(strayBracket)
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
		s.from, s.to, s.pos = int32(start), int32(i), int32(i+1)
		s.verbatim, s.escaped = true, escaped
		return s.separator()
	}
	return s.bad(openBracket)
}

// separator passes over the '.' behind a bracket; another bracket needs none.
func (s *scanner) separator() bool {
	if s.done() || s.path[s.pos] == '[' {
		return true
	}
	if s.path[s.pos] != '.' {
		return s.bad(noDot)
	}
	if s.pos++; s.done() {
		return s.bad(emptySegment)
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
