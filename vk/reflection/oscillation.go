// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// flipWindow: only writes this close together count as a fight. Longer catches slow fights and more honest edits.
	flipWindow = time.Minute
	// flipLimit writes of at most two different states within the window quarantine an object, as does A, B, A, B.
	flipLimit = 8
	// quarantineFor is how long it is then left alone, unless what is wanted becomes something new.
	quarantineFor = 5 * time.Minute
)

// memory is what is remembered about the copies of a kind: what was written lately, and what the API server made of
// it. Safe for concurrent use.
type memory struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	byKey map[Key]*remembered
}

type remembered struct {
	cause  uint64
	hashes []uint64 // of what was written for this cause within the window, oldest first
	times  []time.Time
	until  time.Time // end of the quarantine
	// accepted: the API server stored `stored` when asked for `asked`, which is not the same; asking again is vain.
	asked, stored uint64
}

// quarantineError says that an object is left alone because what is wanted, or what is there, keeps changing.
type quarantineError struct{ flips int }

func (e *quarantineError) Error() string {
	return fmt.Sprintf("the copy was written %d times within a minute, back and forth between two states: a plugin is not idempotent, or somebody else"+
		" writes the same fields; it is left alone for %s or until something else is wanted", e.flips, quarantineFor)
}

func newMemory(c clock.PassiveClock) *memory {
	return &memory{clock: c, byKey: map[Key]*remembered{}}
}

// mayWrite returns *quarantineError when writing the state with the hash would go on with a fight. The cause is the hash
// of what the state should depend on: when that changes to and fro (the endpoints of a pod that is ready now and then),
// so may the copy, and it is no fight.
func (m *memory) mayWrite(key Key, cause, hash uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.byKey[key]
	if r == nil || r.cause != cause {
		return nil
	}
	now := m.clock.Now()
	if now.Before(r.until) {
		if slices.Contains(r.hashes, hash) {
			return &quarantineError{len(r.hashes)}
		}
		*r = remembered{cause: cause}
	}
	r.forgetBefore(now.Add(-flipWindow))
	if r.fights(hash) {
		r.until = now.Add(quarantineFor)
		return &quarantineError{len(r.hashes)}
	}
	return nil
}

// wrote records a write that succeeded; one that was refused is no part of a fight.
func (m *memory) wrote(key Key, cause, hash uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.byKey[key]
	if r == nil || r.cause != cause {
		r = &remembered{cause: cause}
		m.byKey[key] = r
	}
	now := m.clock.Now()
	r.forgetBefore(now.Add(-flipWindow))
	r.hashes, r.times = append(r.hashes, hash), append(r.times, now)
}

func (r *remembered) forgetBefore(t time.Time) {
	for len(r.times) > 0 && r.times[0].Before(t) {
		r.times, r.hashes = r.times[1:], r.hashes[1:]
	}
}

// fights reports whether writing the hash would complete A, B, A, B, or go on between two states past the limit.
func (r *remembered) fights(hash uint64) bool {
	n := len(r.hashes)
	if n >= 3 && r.hashes[n-1] != hash && r.hashes[n-2] == hash && r.hashes[n-3] == r.hashes[n-1] {
		return true
	}
	if n < flipLimit {
		return false
	}
	different := map[uint64]bool{hash: true}
	for _, h := range r.hashes[n-flipLimit:] {
		different[h] = true
	}
	return len(different) <= 2
}

// accept remembers that the API server turned what was asked into what is stored.
func (m *memory) accept(key Key, asked, stored uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.byKey[key]
	if r == nil {
		r = &remembered{}
		m.byKey[key] = r
	}
	r.asked, r.stored = asked, stored
}

// accepted reports whether the same was asked before, with this result.
func (m *memory) accepted(key Key, asked, stored uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.byKey[key]
	return r != nil && r.asked == asked && r.stored == stored && asked != 0
}

// forget drops what is known about an object that is gone.
func (m *memory) forget(key Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byKey, key)
}
