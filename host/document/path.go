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
		seg, err := s.next()
		if err != nil {
			return nil, err
		}
		out = append(out, Segment{Key: strings.Clone(seg.text), Index: -1})
	}
	return out, nil
}

// scanner walks over the segments of a path without allocating (but for `]]` in a verbatim key).
type scanner struct {
	path string
	pos  int
}

type segment struct {
	text     string
	verbatim bool // written in brackets
}

func newScanner(path string) scanner { return scanner{path: path} }

func (s *scanner) done() bool { return s.pos >= len(s.path) }

// wildcard tells `*`, which only removals take.
func (g segment) wildcard() bool { return g.text == "*" && !g.verbatim }

func noWildcard(path string) error {
	return fail(BadPath, path, "only removals take the wildcard * (the key is written [*])")
}

// next gives the segment at pos and moves behind it and behind a '.' that follows.
func (s *scanner) next() (segment, error) {
	if s.path[s.pos] == '[' {
		return s.verbatim()
	}
	start := s.pos
	for s.pos < len(s.path) {
		c := s.path[s.pos]
		if c == '.' || c == '[' {
			break
		}
		if c == ']' {
			return segment{}, fail(BadPath, s.path, "stray ']' (a key with brackets is written [like]]this])")
		}
		s.pos++
	}
	text := s.path[start:s.pos]
	if text == "" {
		return segment{}, fail(BadPath, s.path, "empty segment")
	}
	return segment{text: text}, s.separator()
}

// verbatim reads `[key]`, where `]]` stands for `]`.
func (s *scanner) verbatim() (segment, error) {
	start := s.pos + 1
	escaped := false
	for i := start; i < len(s.path); i++ {
		if s.path[i] != ']' {
			continue
		}
		if i+1 < len(s.path) && s.path[i+1] == ']' {
			escaped = true
			i++
			continue
		}
		text := s.path[start:i]
		if escaped {
			text = strings.ReplaceAll(text, "]]", "]")
		}
		s.pos = i + 1
		return segment{text: text, verbatim: true}, s.separator()
	}
	return segment{}, fail(BadPath, s.path, "'[' without ']'")
}

// separator passes over the '.' between segments; a bracket needs none before it.
func (s *scanner) separator() error {
	if s.done() || s.path[s.pos] == '[' {
		return nil
	}
	if s.path[s.pos] != '.' {
		return fail(BadPath, s.path, "no '.' after ']'")
	}
	s.pos++
	if s.done() {
		return fail(BadPath, s.path, "ends with '.'")
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
