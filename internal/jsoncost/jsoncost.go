// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package jsoncost estimates the memory of decoded JSON without decoding it.
//
// The size of a text is not sufficient: the text {} takes two bytes, but its decoded object several hundred.
// Therefore values are counted, too.
package jsoncost

import "bytes"

// Cost is the size of a text, in several units.
type Cost struct {
	// Bytes is the length of the text.
	Bytes int64
	// Values is the number of objects, lists and list elements. Each takes 50 to 500 bytes after decoding.
	Values int64
	// Items is the number of elements in lists that are fields of the root, i.e. the number of objects in a
	// Kubernetes list.
	Items int64
}

// Of returns the cost of a complete text.
func Of(text []byte) Cost {
	var m Meter
	m.Count(text)
	return m.Cost
}

// Meter computes the cost of a text that arrives in pieces. Several JSON values may follow each other, as in a watch.
// The zero value is ready for use. A Meter does not validate the text, so the cost of invalid JSON has no meaning.
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

// skipString returns the index of the closing quote of the string whose text continues in piece, or -1 if piece does
// not contain the quote.
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
