// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package statusdelay decides how long the status of an object waits before it is written in this cluster. There are
// three delays, which apply to a status in this order:
//
//   - Settle: the first status of a copy that has not started is held back until it has had time to change.
//   - Batch: changes to many objects are written together.
//   - Pace: one object is written a limited number of times per second.
//
// A delayed status is not lost: the object is evaluated again after the delay, and its latest status is written. Settle
// and Batch apply only to pods, and there only to statuses that are not urgent. Pace applies to every kind.
package statusdelay

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

const (
	// DefaultSettlePeriod is how long a pod of the provider may be Pending before its status is written. Most pods
	// start within this time. With a longer period, users see later that a pod does not start. With a shorter period, a
	// status is written twice.
	DefaultSettlePeriod = time.Second

	// batchPeriod is the time within which changed statuses are written together. During a rollout the controllers of this
	// cluster react to each pod that becomes Ready: they update the status of its ReplicaSet and Deployment, and the
	// EndpointSlices of its Services, which are reflected in turn. A longer period delays each status; with a shorter one,
	// the controllers see fewer changes at once.
	batchPeriod = 500 * time.Millisecond
	// batchAtOnce is the number of statuses per period that are written without a delay, so that a few changes are
	// visible at once.
	batchAtOnce = 5

	// pacePerSecond and PaceBurst limit the status writes of one object: a burst, as for a pod that starts, then one
	// write per second. They bound the load on this cluster's API server from a provider whose statuses change
	// constantly.
	pacePerSecond = 1
	PaceBurst     = 10
)

// Policy decides when the statuses of one kind are written. A Policy is safe for concurrent use.
type Policy struct {
	settlePeriod time.Duration

	mu       sync.Mutex
	batchEnd time.Time // end of the current batch period
	atOnce   int       // number of statuses in this batch period that were written without a delay
	paces    map[cache.ObjectName]*rate.Limiter
}

// New returns the Policy of a kind. settlePeriod is the delay that Settle applies.
func New(settlePeriod time.Duration) *Policy {
	return &Policy{settlePeriod: settlePeriod, paces: map[cache.ObjectName]*rate.Limiter{}}
}

// Status holds the state of the delays of one object's status. The zero value stands for a status that has not changed.
// A Status must not be used concurrently.
type Status struct {
	copied types.UID // UID of the copy whose first status is delayed
	since  time.Time // time since which that status is delayed
	due    time.Time // time at which the changed status may be written (see Batch); zero if it has not changed
}

// Written records that the latest status was written, or that there was nothing to write.
func (s *Status) Written() { s.due = time.Time{} }

// Settle returns how much longer the first status of the copy with this UID must wait. The result is not positive if
// the status may be written.
func (p *Policy) Settle(s *Status, copied types.UID, now time.Time) time.Duration {
	if s.copied != copied {
		s.copied, s.since = copied, now
	}
	return p.settlePeriod - now.Sub(s.since)
}

// Batch returns how long a changed status must wait to be written together with others, or 0 if it may be written now.
// A status waits only once per change, so the caller must call Written after it has written the status.
func (p *Policy) Batch(s *Status, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !now.Before(p.batchEnd) {
		p.batchEnd, p.atOnce = now.Add(batchPeriod), 0
	}
	switch {
	case !s.due.IsZero():
	case p.atOnce < batchAtOnce:
		p.atOnce++
		s.due = now
	default:
		s.due = p.batchEnd
	}
	return max(0, s.due.Sub(now))
}

// Pace returns 0 if the status of an object may be written now, and counts the write. Otherwise it returns the delay
// until the next write is allowed.
func (p *Policy) Pace(key cache.ObjectName, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	limiter := p.paces[key]
	if limiter == nil {
		limiter = rate.NewLimiter(pacePerSecond, PaceBurst)
		p.paces[key] = limiter
	}
	turn := limiter.ReserveN(now, 1)
	wait := turn.DelayFrom(now)
	if wait > 0 {
		turn.CancelAt(now)
	}
	return wait
}

// Forget drops the state of Pace for a deleted object.
func (p *Policy) Forget(key cache.ObjectName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.paces, key)
}

// Len returns the number of objects for which Pace keeps state.
func (p *Policy) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.paces)
}
