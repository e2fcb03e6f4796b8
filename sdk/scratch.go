// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build wasip1

package sdk

import "unsafe"

// arena allocates bytes that are valid until the next call of a hook. An instance serves one call at a time, so its
// arena can be reused, and most calls do not allocate on the heap. The arena does not shrink. It keeps the largest size
// that a call has needed so far.
type arena struct {
	buffer []byte
	used   int
}

const initialScratch = 8 << 10

var (
	initialBuffer [initialScratch]byte
	scratch       = arena{buffer: initialBuffer[:]}
	scratchKeys   []string
)

func (a *arena) reset() {
	a.used = 0
	scratchKeys = scratchKeys[:0]
}

// free returns the unused bytes of the buffer, which are at least n.
func (a *arena) free(n int) []byte {
	if len(a.buffer)-a.used < n {
		// The old buffer is kept as long as strings of this call refer to it.
		a.buffer = make([]byte, max(2*len(a.buffer), 2*n))
		a.used = 0
	}
	return a.buffer[a.used:]
}

// take marks the first n free bytes as used and returns them as a string.
func (a *arena) take(free []byte, n int) string {
	a.used += n
	return unsafe.String(unsafe.SliceData(free), n)
}

// Concat concatenates strings without allocating. The result is valid until the hook returns.
func Concat(parts ...string) string {
	n := 0
	for _, part := range parts {
		n += len(part)
	}
	free := scratch.free(n)
	at := 0
	for _, part := range parts {
		at += copy(free[at:], part)
	}
	return scratch.take(free, n)
}
