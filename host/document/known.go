// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"math/bits"
	"strings"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// A plugin asks for the same few paths with every object. Their parsed forms are kept in slots, which the texts' addresses
// choose and nothing but the texts' contents opens: whatever a guest writes there later, an answer is never for another
// path. What is kept depends on what was asked for before, what is found and what it costs in TakeWork does not.
const (
	pathSlots = 128
	maxCredit = 64

	// Longer texts, and texts of more hops, are parsed each time: a Document keeps some 10 KB a slot at most.
	maxKnownText = 512
	maxKnownHops = 128
)

// known is a text taken apart; it and its parts are never changed.
type known struct {
	text   string
	lines  bool // it is of several paths, separated by newlines
	routes []route
}

// pathSlot holds one known text. It changes hands when it was asked for others more than maxCredit times without being asked
// for its own, and then twice in a row for the same: paths that are made up again for each call, in the same memory, never
// get that far, so that a Document that has seen its plugins at work allocates nothing.
type pathSlot struct {
	known     *known
	candidate uint32 // hash of the last text when there was no credit
	credit    uint8
}

// slotOf chooses by the low bits of the text's address, which stay when a guest's memory grows and moves.
func (d *Document) slotOf(text string) *pathSlot {
	const pageMask = 1<<13 - 1
	at := uint64(uintptr(unsafe.Pointer(unsafe.StringData(text)))&pageMask)<<16 ^ uint64(len(text))
	hi, lo := bits.Mul64(at, 0x9e3779b97f4a7c15)
	return &d.paths[(hi^lo>>32)%pathSlots]
}

// learn keeps the text, of which the slot knows nothing, if it seems worth it.
func (s *pathSlot) learn(text string, lines bool) *known {
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

// newKnown takes a text apart; nil if there is too much of it, or if a path is malformed, which its use reports.
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
		if r.parse(path, true) != nil {
			return nil
		}
		if n := len(k.routes); n > 0 {
			r.again = r.sameStart(&k.routes[n-1])
		}
		k.routes = append(k.routes, r)
	}
	return k
}

// maxHops is at least the number of hops of all paths of a text.
func maxHops(text string) int {
	return 1 + strings.Count(text, ".") + strings.Count(text, "[") + strings.Count(text, "\n")
}
