// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package oscillation detects that a copy is written back and forth, by a plugin that is not idempotent or by another
// client that writes the same fields, and skips it for a while.
package oscillation

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	// flipWindow: only writes this close together count as a fight. Longer catches slow fights and more honest edits.
	flipWindow = time.Minute
	// flipLimit writes of at most two different states within the window quarantine an object, as does A, B, A, B.
	flipLimit = 8
	// Quarantine is how long it is then left alone, unless what is desired becomes something new.
	Quarantine = 5 * time.Minute
)

// Memory remembers the recent writes of the copies of a kind, and how the API server normalized
// them. Safe for concurrent use.
type Memory struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	byKey map[cache.ObjectName]*remembered
}

type remembered struct {
	cause  uint64
	hashes []uint64 // of what was written for this cause within the window, oldest first
	times  []time.Time
	until  time.Time // end of the quarantine
	// accepted: the API server stored `stored` when asked for `asked`, which is not the same; writing it again would change nothing.
	asked, stored uint64
}

// QuarantineError is returned if an object is skipped because its desired or actual state keeps alternating.
type QuarantineError struct{ Flips int }

func (e *QuarantineError) Error() string {
	return fmt.Sprintf("the remote object changed back and forth %d times within a minute: a plugin is not idempotent, or another client"+
		" writes the same fields; skipping it for %s or until the desired state changes", e.Flips, Quarantine)
}

// New returns an empty Memory.
func New(c clock.PassiveClock) *Memory {
	return &Memory{clock: c, byKey: map[cache.ObjectName]*remembered{}}
}

// MayWrite returns *QuarantineError when writing the state with the hash would go on with a fight. The cause is the hash
// of what the state should depend on: when that changes to and fro (the endpoints of a pod that is ready now and then),
// so may the copy, and it is no fight.
func (m *Memory) MayWrite(key cache.ObjectName, cause, hash uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.byKey[key]
	if r == nil || r.cause != cause {
		return nil
	}
	now := m.clock.Now()
	if now.Before(r.until) {
		if slices.Contains(r.hashes, hash) {
			return &QuarantineError{len(r.hashes)}
		}
		*r = remembered{cause: cause}
	}
	r.forgetBefore(now.Add(-flipWindow))
	if r.fights(hash) {
		r.until = now.Add(Quarantine)
		return &QuarantineError{len(r.hashes)}
	}
	return nil
}

// Wrote records a successful write; rejected ones do not count as oscillation.
func (m *Memory) Wrote(key cache.ObjectName, cause, hash uint64) {
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

// Accept remembers how the API server normalized a write.
func (m *Memory) Accept(key cache.ObjectName, asked, stored uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.byKey[key]
	if r == nil {
		r = &remembered{}
		m.byKey[key] = r
	}
	r.asked, r.stored = asked, stored
}

// Accepted reports whether the same write had this result before.
func (m *Memory) Accepted(key cache.ObjectName, asked, stored uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.byKey[key]
	return r != nil && r.asked == asked && r.stored == stored && asked != 0
}

// Forget drops the state of a deleted object.
func (m *Memory) Forget(key cache.ObjectName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.byKey, key)
}
