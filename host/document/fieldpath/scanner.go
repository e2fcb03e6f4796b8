// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fieldpath

import "strings"

// scanner iterates over the segments of a path. It allocates memory only for `]]` in a bracketed key. After
// scanSegment, segmentText returns the segment. If scanSegment returns false, the path is malformed, and pathError
// returns the reason.
type scanner struct {
	path     string
	pos      int  // start of the next segment
	from, to int  // bounds of the segment
	verbatim bool // the segment is in brackets
	escaped  bool // the segment contains ]]
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

func (s *scanner) isDone() bool { return s.pos >= len(s.path) }

func (s *scanner) pathError() error { return newError(s.path, problems[s.problem]) }

func (s *scanner) reportProblem(p problem) bool {
	s.problem = p
	return false
}

// segmentText returns the segment that was scanned last.
func (s *scanner) segmentText() string {
	if s.escaped {
		return strings.ReplaceAll(s.path[s.from:s.to], "]]", "]")
	}
	return s.path[s.from:s.to]
}

// scanSegment scans the segment at pos and a '.' that follows it.
func (s *scanner) scanSegment() bool {
	path, start := s.path, s.pos
	i := start
	for ; i < len(path); i++ {
		c := path[i]
		if c > ']' { // a fast check that excludes most letters
			continue
		}
		if c == '.' {
			s.setPlain(start, i, i+1)
			if i == start || i+1 == len(path) {
				return s.reportProblem(emptySegment)
			}
			return true
		}
		if c == '[' || c == ']' {
			break
		}
	}
	if i < len(path) && (i == start || path[i] == ']') {
		return s.scanBracket(i)
	}
	s.setPlain(start, i, i)
	return true
}

func (s *scanner) setPlain(from, to, next int) {
	s.from, s.to, s.pos = from, to, next
	s.verbatim, s.escaped = false, false
}

// scanBracket scans `[key]`. In the key, `]]` means `]`.
func (s *scanner) scanBracket(at int) bool {
	if s.path[at] == ']' {
		return s.reportProblem(strayBracket)
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
		s.from, s.to, s.pos = start, i, i+1
		s.verbatim, s.escaped = true, escaped
		return s.skipSeparator()
	}
	return s.reportProblem(openBracket)
}

// skipSeparator skips the '.' after a bracket. Before another bracket, the '.' may be missing.
func (s *scanner) skipSeparator() bool {
	if s.isDone() || s.path[s.pos] == '[' {
		return true
	}
	if s.path[s.pos] != '.' {
		return s.reportProblem(noDot)
	}
	if s.pos++; s.isDone() {
		return s.reportProblem(emptySegment)
	}
	return true
}

// ParseIndex parses a decimal list position. It returns -1 if the text is not a list position.
func ParseIndex(text string) int {
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
