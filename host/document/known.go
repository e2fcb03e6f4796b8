// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"math/bits"
	"strings"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// A plugin uses the same few paths with every object. Their parsed forms are kept in slots. The address of the text
// selects the slot, but only an equal text uses it: a guest may overwrite its memory without getting another path's
// result. Earlier lookups change neither results nor the cost in TakeWork.
const (
	pathSlots = 128
	maxCredit = 64

	// Longer texts, and texts of more hops, are parsed each time: a Document keeps at most some 10 KB per slot.
	maxKnownText = 512
	maxKnownHops = 128
)

// known is a parsed text. It is immutable.
type known struct {
	text   string
	lines  bool // several paths, separated by newlines
	routes []route
}

// pathSlot holds one known text. It is replaced after more than maxCredit lookups of other texts without one of its
// own, and then two lookups in a row of the same text. Paths that are generated for each call, in the same memory,
// never reach that, so that a Document that has run its plugins allocates nothing.
type pathSlot struct {
	known     *known
	candidate uint32 // hash of the last text looked up without credit
	credit    uint8
}

// slotOf selects a slot by the low bits of the text's address, which stay when a guest's memory grows and moves.
func (d *Document) slotOf(text string) *pathSlot {
	const pageMask = 1<<13 - 1
	at := uint64(uintptr(unsafe.Pointer(unsafe.StringData(text)))&pageMask)<<16 ^ uint64(len(text))
	hi, lo := bits.Mul64(at, 0x9e3779b97f4a7c15)
	return &d.paths[(hi^lo>>32)%pathSlots]
}

// learnText parses and keeps a text that the slot does not have, if it is used often enough.
func (s *pathSlot) learnText(text string, lines bool) *known {
	if s.credit > 0 {
		s.credit--
		return nil
	}
	if len(text) > maxKnownText {
		return nil
	}
	if sum := uint32(xxhash.Sum64String(text)); sum != s.candidate {
		s.candidate = sum
		return nil
	}
	if k := newKnown(text, lines); k != nil {
		s.known, s.credit = k, maxCredit
		return k
	}
	return nil
}

// newKnown parses a text. It returns nil if the text has too many hops, or if a path is malformed, which its use
// reports.
func newKnown(text string, lines bool) *known {
	if maxHops(text) > maxKnownHops {
		return nil
	}
	text = strings.Clone(text)
	k := &known{text: text, lines: lines}
	for more := true; more; {
		path := text
		if more = false; lines {
			path, text, more = strings.Cut(text, "\n")
		}
		var r route
		if r.parsePath(path, true) != nil {
			return nil
		}
		if n := len(k.routes); n > 0 {
			r.again = r.sameStart(&k.routes[n-1])
		}
		k.routes = append(k.routes, r)
	}
	return k
}

// maxHops returns an upper bound of the number of hops of all paths of a text.
func maxHops(text string) int {
	return 1 + strings.Count(text, ".") + strings.Count(text, "[") + strings.Count(text, "\n")
}
