// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package oscillation detects that an object alternates between states, and quarantines the object for a while. The
// cause may be a plugin that is not idempotent, or another client that writes the same fields or deletes the object.
// The virtual kubelet and the controller manager use this package for their writes.
package oscillation

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// flipWindow is the period in which the states A, B, A, B count as a fight. If it were longer, the rollback of a
	// plugin would count as a fight.
	flipWindow = time.Minute
	// slowWindow is the period in which writeLimit writes of at most two states also count as a fight. If it were
	// longer, harmless repairs would count as a fight; if it were shorter, a client that reverts an object every
	// minute would not be detected.
	slowWindow = 10 * time.Minute
	// writeLimit is the number of writes to an object that are remembered. If it were higher, the quarantine would
	// begin later; if it were lower, objects that are occasionally repaired would be quarantined.
	writeLimit = 8
)

// Limits contains the limits of the duration of a quarantine.
type Limits struct {
	First time.Duration // duration of the first quarantine of a fight; each further quarantine lasts twice as long
	Most  time.Duration // maximum duration of a quarantine
}

// Standard is for objects that can stay deleted or reverted during a quarantine, because this gives nobody additional
// permissions.
var Standard = Limits{First: time.Minute, Most: 15 * time.Minute}

// Protective is for objects that restrict a party, which may itself be the rival in the fight. They are always
// rewritten within seconds, so a fight costs several writes per minute.
var Protective = Limits{First: time.Second, Most: 10 * time.Second}

// Guard records recent writes of objects. It is safe for concurrent use.
type Guard[K comparable] struct {
	clock  clock.PassiveClock
	limits Limits
	mu     sync.Mutex
	byKey  map[K]*history
	swept  time.Time
}

// history contains the recent writes of an object that have the same cause.
type history struct {
	cause  uint64
	writes []write // at most writeLimit writes, the oldest one first
	count  int     // number of writes in the fight that led to the quarantine
	spell  time.Duration
	until  time.Time // end of the last quarantine; zero if there was none
	rival  string
}

type write struct {
	state uint64
	at    time.Time
}

// QuarantineError means that an object is not written because its desired or actual state keeps alternating.
type QuarantineError struct {
	Writes int           // number of writes in the fight
	For    time.Duration // duration of the quarantine
	Left   time.Duration // remaining time of the quarantine
	Began  bool          // whether the quarantine began with this call
	Grew   bool          // whether the quarantine is longer than the previous one
	Rival  string        // the client that reverts the writes, or empty if it is unknown (see Guard.RecordRival)
}

func (e *QuarantineError) Error() string {
	rival := e.Rival
	if rival == "" {
		rival = "a plugin is not idempotent, or another client writes the same fields or deletes the object"
	}
	return fmt.Sprintf("the object changed back and forth %d times: %s; skipping it for %s or until the desired state changes", e.Writes, rival, e.For)
}

// New returns an empty Guard.
func New[K comparable](c clock.PassiveClock, limits Limits) *Guard[K] {
	return &Guard[K]{clock: c, limits: limits, byKey: map[K]*history{}, swept: c.Now()}
}

// MayWrite returns a *QuarantineError if writing the state with this hash would continue a fight. The cause is a hash
// of the legitimate inputs of the state. If these inputs alternate, the object may alternate, too. This is not a fight.
// An example is an endpoint of a pod that is ready only at times. After a quarantine, one write is allowed, to find out
// whether the fight has ended.
func (g *Guard[K]) MayWrite(key K, cause, state uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.byKey[key]
	if h == nil || h.cause != cause {
		return nil
	}
	now := g.clock.Now()
	if now.Before(h.until) {
		if h.hasWritten(state) {
			return h.quarantineError(now)
		}
		*h = history{cause: cause}
		return nil
	}
	h.forgetCalm(now)
	if !h.continuesFight(state, now) {
		return nil
	}
	before := h.spell
	h.spell = min(max(2*h.spell, g.limits.First), g.limits.Most)
	h.until, h.rival = now.Add(h.spell), ""
	began := h.quarantineError(now)
	began.Began, began.Grew = true, h.spell > before
	return began
}

// RecordWrite records a successful write. Rejected writes must not be recorded.
func (g *Guard[K]) RecordWrite(key K, cause, state uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	g.sweepHistories(now)
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

// RecordRival records which client reverts the writes of an object. The record is kept until the object's quarantine
// ends.
func (g *Guard[K]) RecordRival(key K, rival string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h := g.byKey[key]; h != nil {
		h.rival = rival
	}
}

// Describe adds a description of the rival to err if err reports the beginning of a quarantine. It returns err.
func (g *Guard[K]) Describe(key K, err error, rival func() string) error {
	var fight *QuarantineError
	if errors.As(err, &fight) && fight.Began {
		fight.Rival = rival()
		g.RecordRival(key, fight.Rival)
	}
	return err
}

// DropKey drops the records of a deleted object.
func (g *Guard[K]) DropKey(key K) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.byKey, key)
}

// Quarantined returns the number of objects that are currently quarantined.
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

// sweepHistories drops the records of objects that were not written recently and are not in a fight. It only does so
// from time to time.
func (g *Guard[K]) sweepHistories(now time.Time) {
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

func (h *history) quarantineError(now time.Time) *QuarantineError {
	return &QuarantineError{Writes: h.count, For: h.spell, Left: h.until.Sub(now), Rival: h.rival}
}

func (h *history) hasWritten(state uint64) bool {
	return slices.ContainsFunc(h.writes, func(w write) bool { return w.state == state })
}

// forgetCalm drops writes that are older than slowWindow. It drops a fight if the object has been calm for slowWindow
// or for the duration of the last quarantine, whichever is longer.
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
		// The states of the fight are kept until the fight has ended.
		return
	}
	for len(h.writes) > 0 && h.writes[0].at.Before(now.Add(-slowWindow)) {
		h.writes = h.writes[1:]
	}
}

// continuesFight reports whether writing the state would be part of a fight: it continues the fight before the
// quarantine, completes the sequence A, B, A, B, or exceeds writeLimit with at most two different states.
func (h *history) continuesFight(state uint64, now time.Time) bool {
	n := len(h.writes)
	if !h.until.IsZero() {
		return n > 0 && h.writes[n-1].at.After(h.until) && h.hasWritten(state)
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
