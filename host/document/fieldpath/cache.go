// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fieldpath

import (
	"math/bits"
	"strings"
	"unsafe"

	"github.com/cespare/xxhash/v2"
)

// A plugin uses the same few paths for every object, so their parsed forms are stored in slots. The address of the
// text selects the slot. The stored form is used only if its text is equal, because a guest may overwrite its memory.
// Earlier lookups must change neither the results nor the work.
const (
	pathSlots = 128
	maxCredit = 64

	// Limits of stored texts. Longer texts, and texts with more hops, are parsed each time, so that a Cache uses
	// at most about 10 KB per slot.
	maxKnownText = 512
	maxKnownHops = 128
)

// known is the parsed form of a text. It is immutable.
type known struct {
	text   string
	lines  bool // the text has several paths, separated by newlines
	routes []Route
}

// pathSlot holds one known text. The text is replaced if more than maxCredit lookups of other texts occur without a
// lookup of this text, and after them two consecutive lookups of the same text. Paths that a guest generates again for
// each call, in the same memory, do not meet this condition, and thus cause no allocations.
type pathSlot struct {
	known     *known
	candidate uint32 // hash of the last text that was looked up when the slot had no credit
	credit    uint8
}

// Cache has the routes of texts that are used often. It is not safe for concurrent use.
type Cache struct {
	slots   [pathSlots]pathSlot
	scratch Route // reused for paths that have no slot
}

// Route returns the parsed path. The result is valid until the next call, or until the end of the text's memory.
func (c *Cache) Route(path string) (*Route, error) {
	s := c.slotOf(path)
	k := s.known
	if k != nil && k.text == path && !k.lines {
		s.credit = maxCredit
	} else if k = s.learnText(path, false); k == nil {
		err := c.scratch.parsePath(path, false)
		return &c.scratch, err
	}
	return &k.routes[0], nil
}

// Release drops the references to the last path. They may refer to the memory of a guest.
func (c *Cache) Release() {
	if c.scratch.Text != "" {
		clear(c.scratch.Hops[:cap(c.scratch.Hops)])
		c.scratch = Route{Hops: c.scratch.Hops[:0]}
	}
}

// Len returns the number of texts whose routes are stored.
func (c *Cache) Len() (n int) {
	for _, s := range c.slots {
		if s.known != nil {
			n++
		}
	}
	return n
}

// slotOf returns the slot for a text. The low bits of the text's address select it, because they do not change when a
// guest's memory grows and moves.
func (c *Cache) slotOf(text string) *pathSlot {
	const pageMask = 1<<13 - 1
	at := uint64(uintptr(unsafe.Pointer(unsafe.StringData(text)))&pageMask)<<16 ^ uint64(len(text))
	hi, lo := bits.Mul64(at, 0x9e3779b97f4a7c15)
	return &c.slots[(hi^lo>>32)%pathSlots]
}

// learnText parses a text that the slot does not have. It stores the result if the text is used often enough.
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

// newKnown parses a text. It returns nil if the text has too many hops. It also returns nil if a path is malformed;
// the operation that uses the path then reports the error.
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
		var r Route
		if r.parsePath(path, true) != nil {
			return nil
		}
		if n := len(k.routes); n > 0 {
			r.Again = r.sameStart(&k.routes[n-1])
		}
		k.routes = append(k.routes, r)
	}
	return k
}

// maxHops returns an upper bound for the number of hops in all paths of a text.
func maxHops(text string) int {
	return 1 + strings.Count(text, ".") + strings.Count(text, "[") + strings.Count(text, "\n")
}
