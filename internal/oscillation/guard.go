// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package oscillation detects that an object is written back and forth, by a plugin that is not idempotent or by another
// client that writes the same fields or deletes it, and quarantines it for a while. The virtual kubelet and the controller
// manager use it for what they write.
package oscillation

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// flipWindow: A, B, A, B within it is a fight. Longer mistakes the rollback of a plugin for one.
	flipWindow = time.Minute
	// slowWindow: writeLimit writes of at most two states within it are a fight, too. Longer catches fights that cost next to
	// nothing, and honest repairs; shorter misses a client that reverts an object every minute.
	slowWindow = 10 * time.Minute
	// writeLimit writes are remembered of an object. More delays the quarantine, fewer quarantines an object that is
	// repaired now and then.
	writeLimit = 8
)

// Limits are how long a quarantine lasts.
type Limits struct {
	First time.Duration // the first one of a fight; each further one lasts twice as long
	Most  time.Duration // but no longer than this
}

// Standard is for objects that grant nobody more than it should have while they are left alone.
var Standard = Limits{First: time.Minute, Most: 15 * time.Minute}

// Protective is for objects that restrict a party which may itself be the one that fights: they are rewritten within seconds,
// whatever it does, and the fight costs a few writes a minute.
var Protective = Limits{First: time.Second, Most: 10 * time.Second}

// Guard remembers the recent writes of objects. Safe for concurrent use.
type Guard[K comparable] struct {
	clock  clock.PassiveClock
	limits Limits
	mu     sync.Mutex
	byKey  map[K]*history
	swept  time.Time
}

// history is what is remembered of an object: the last writes for one cause.
type history struct {
	cause  uint64
	writes []write // oldest first, at most writeLimit
	count  int     // of the writes in the fight that the quarantine ended
	spell  time.Duration
	until  time.Time // end of the quarantine that began last, zero for none
	rival  string
}

type write struct {
	state uint64
	at    time.Time
}

// QuarantineError is returned if an object is skipped because its desired or actual state keeps alternating.
type QuarantineError struct {
	Writes int           // that were reverted
	For    time.Duration // of the quarantine
	Left   time.Duration // until it ends
	Began  bool          // by this call
	Grew   bool          // it is longer than the quarantine before it
	Rival  string        // who reverts the writes, as far as known: see Guard.Blame
}

func (e *QuarantineError) Error() string {
	rival := e.Rival
	if rival == "" {
		rival = "a plugin is not idempotent, or another client writes the same fields or deletes the object"
	}
	return fmt.Sprintf("the object changed back and forth %d times: %s; skipping it for %s or until the desired state changes", e.Writes, rival, e.For)
}

// New returns a Guard without memories.
func New[K comparable](c clock.PassiveClock, limits Limits) *Guard[K] {
	return &Guard[K]{clock: c, limits: limits, byKey: map[K]*history{}, swept: c.Now()}
}

// MayWrite returns *QuarantineError when writing the state with the hash would go on with a fight. The cause is the hash
// of what the state should depend on: when that changes to and fro (the endpoints of a pod that is ready now and then),
// so may the object, and it is no fight. The quarantine is followed by one write, to see whether the fight has ended.
func (g *Guard[K]) MayWrite(key K, cause, state uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.byKey[key]
	if h == nil || h.cause != cause {
		return nil
	}
	now := g.clock.Now()
	if now.Before(h.until) {
		if h.wrote(state) {
			return h.quarantine(now)
		}
		*h = history{cause: cause}
		return nil
	}
	h.forgetCalm(now)
	if !h.fights(state, now) {
		return nil
	}
	before := h.spell
	h.spell = min(max(2*h.spell, g.limits.First), g.limits.Most)
	h.until, h.rival = now.Add(h.spell), ""
	began := h.quarantine(now)
	began.Began, began.Grew = true, h.spell > before
	return began
}

// Wrote records a successful write; rejected ones do not count as oscillation.
func (g *Guard[K]) Wrote(key K, cause, state uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	g.sweep(now)
	h := g.byKey[key]
	if h == nil || h.cause != cause {
		h = &history{cause: cause}
		g.byKey[key] = h
	}
	h.forgetCalm(now)
	if len(h.writes) == writeLimit {
		h.writes = h.writes[1:]
	}
	h.writes, h.count = append(slices.Clip(h.writes), write{state, now}), h.count+1
}

// Blame records who reverts the writes of an object, for the rest of its quarantine.
func (g *Guard[K]) Blame(key K, rival string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h := g.byKey[key]; h != nil {
		h.rival = rival
	}
}

// Forget drops the memory of a deleted object.
func (g *Guard[K]) Forget(key K) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.byKey, key)
}

// Quarantined counts the objects that are left alone now.
func (g *Guard[K]) Quarantined() (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	for _, h := range g.byKey {
		if now.Before(h.until) {
			n++
		}
	}
	return n
}

// sweep drops, now and then, what says nothing any more: the memory of objects that nobody fights about is empty.
func (g *Guard[K]) sweep(now time.Time) {
	if now.Sub(g.swept) < slowWindow {
		return
	}
	g.swept = now
	for key, h := range g.byKey {
		if h.forgetCalm(now); len(h.writes) == 0 && !now.Before(h.until) {
			delete(g.byKey, key)
		}
	}
}

func (h *history) quarantine(now time.Time) *QuarantineError {
	return &QuarantineError{Writes: h.count, For: h.spell, Left: h.until.Sub(now), Rival: h.rival}
}

func (h *history) wrote(state uint64) bool {
	return slices.ContainsFunc(h.writes, func(w write) bool { return w.state == state })
}

// forgetCalm drops the writes before the window, and the fight when nothing had to be written for as long as that, or as long as
// its last quarantine, if that is longer.
func (h *history) forgetCalm(now time.Time) {
	calm := max(slowWindow, h.spell)
	last := h.until
	if n := len(h.writes); n > 0 && h.writes[n-1].at.After(last) {
		last = h.writes[n-1].at
	}
	if now.Sub(last) >= calm {
		*h = history{cause: h.cause}
		return
	}
	if !h.until.IsZero() {
		return // the states of the fight are known until it has ended
	}
	for len(h.writes) > 0 && h.writes[0].at.Before(now.Add(-slowWindow)) {
		h.writes = h.writes[1:]
	}
}

// fights reports whether writing the state would go on with the fight before the quarantine, complete A, B, A, B, or go on between two
// states past the limit.
func (h *history) fights(state uint64, now time.Time) bool {
	n := len(h.writes)
	if !h.until.IsZero() {
		return n > 0 && h.writes[n-1].at.After(h.until) && h.wrote(state)
	}
	if n >= 3 && h.writes[n-1].state != state && h.writes[n-2].state == state && h.writes[n-3].state == h.writes[n-1].state &&
		now.Sub(h.writes[n-3].at) <= flipWindow {
		return true
	}
	if n < writeLimit {
		return false
	}
	different := map[uint64]bool{state: true}
	for _, w := range h.writes {
		different[w.state] = true
	}
	return len(different) <= 2
}
