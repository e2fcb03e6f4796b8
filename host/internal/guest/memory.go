// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import "github.com/tetratelabs/wazero/experimental"

// memory is the linear memory of an instance. It records that growth was refused, because the trap that follows does
// not show this.
type memory struct {
	bytes   []byte
	max     uint64
	started bool
	refused bool
}

// Allocate implements experimental.MemoryAllocator.
func (m *memory) Allocate(uint64, uint64) experimental.LinearMemory { return m }

// Reallocate implements experimental.LinearMemory. It returns nil to refuse growth. The first call, for the initial
// size, must not return nil, because wazero does not support this. If the initial size is too large, Reallocate panics,
// and NewInstance recovers.
func (m *memory) Reallocate(size uint64) []byte {
	if size > m.max {
		m.refused = true
		if !m.started {
			panic(errMemoryRefused)
		}
		return nil
	}
	m.started = true
	if size > uint64(cap(m.bytes)) {
		// The capacity is at least doubled, so that growth by single pages does not copy the memory each time.
		grown := make([]byte, size, min(max(size, 2*uint64(cap(m.bytes))), m.max))
		copy(grown, m.bytes)
		m.bytes = grown
	}
	m.bytes = m.bytes[:size]
	return m.bytes
}

// Free implements experimental.LinearMemory.
func (m *memory) Free() { m.bytes = nil }

// MaxPages is the number of pages in 4 GiB, the address space of 32-bit pointers.
const MaxPages = 1 << 16
