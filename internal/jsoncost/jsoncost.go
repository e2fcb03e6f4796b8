// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package jsoncost estimates the memory of decoded JSON without decoding it.
//
// The length of the text is not sufficient: the text {} has two bytes, but the decoded object takes several hundred.
// Therefore this package also counts values.
package jsoncost

import "bytes"

// Cost is the size of a JSON text in several units.
type Cost struct {
	// Bytes is the length of the text.
	Bytes int64
	// Values is the number of opening brackets and commas, which approximates the number of objects, lists, fields and
	// list elements. Each takes 50 to 500 bytes after decoding.
	Values int64
	// Items is the number of objects and lists that are elements of lists in direct fields of the root. In a Kubernetes
	// list, this is the number of its objects.
	Items int64
}

// Of returns the cost of a complete text.
func Of(text []byte) Cost {
	var m Meter
	m.Count(text)
	return m.Cost
}

// Meter computes the cost of a text that arrives in pieces. The text may contain several JSON values in a row, as in a
// watch. The zero value is ready for use. A Meter does not validate the text, so the cost of invalid JSON is
// meaningless.
type Meter struct {
	Cost

	depth             int64
	rootIsObject      bool
	fieldIsList       bool
	inString, escaped bool
}

// Count adds the next piece of the text.
func (m *Meter) Count(piece []byte) {
	m.Bytes += int64(len(piece))
	for i := 0; i < len(piece); i++ {
		if m.inString {
			skipped := m.skipString(piece[i:])
			if skipped < 0 {
				return
			}
			i += skipped
			continue
		}
		switch c := piece[i]; c {
		case '"':
			m.inString = true
		case ',':
			m.Values++
		case '{', '[':
			m.countOpening(c)
		case '}', ']':
			m.depth--
		}
	}
}

// countOpening counts the beginning of an object or a list.
func (m *Meter) countOpening(bracket byte) {
	m.Values++
	switch {
	case m.depth <= 0:
		m.depth, m.rootIsObject = 0, bracket == '{'
	case m.depth == 1:
		m.fieldIsList = m.rootIsObject && bracket == '['
	case m.depth == 2 && m.fieldIsList:
		m.Items++
	}
	m.depth++
}

// skipString skips the rest of a string that has begun. It returns the index of the closing quote in piece, or -1 if
// piece does not contain it.
func (m *Meter) skipString(piece []byte) int {
	if quote := bytes.IndexByte(piece, '"'); !m.escaped && quote >= 0 && bytes.IndexByte(piece[:quote], '\\') < 0 {
		m.inString = false
		return quote
	}
	for i, c := range piece {
		switch {
		case m.escaped:
			m.escaped = false
		case c == '\\':
			m.escaped = true
		case c == '"':
			m.inString = false
			return i
		}
	}
	return -1
}
