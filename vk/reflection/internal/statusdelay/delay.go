// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package statusdelay decides how long the status of an object waits before it is written in this cluster. There are
// three delays, which apply to a status in this order:
//
//   - Settle: the first status of a copy that has not started is held back until it has had time to change.
//   - Batch: changes to many objects are written together.
//   - Pace: one object is written a limited number of times per second.
//
// A status that waits is not lost: the object is evaluated again after the delay, and its latest status is written. Only
// pods settle and are batched, except for a status that is urgent; every kind is paced.
package statusdelay

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

const (
	// DefaultSettlePeriod is how long a pod of the provider may be Pending before its status is written. Most pods start
	// within this time. A longer period shows later that a pod does not start; a shorter one writes a status twice.
	DefaultSettlePeriod = time.Second

	// batchPeriod is the time within which changed statuses are written together. During a rollout the controllers of this
	// cluster react to each pod that becomes Ready: they update the status of its ReplicaSet and Deployment, and the
	// EndpointSlices of its Services, which are reflected in turn. A longer period delays each status; with a shorter one,
	// the controllers see fewer changes at once.
	batchPeriod = 500 * time.Millisecond
	// batchAtOnce is the number of statuses per period that are not held back, so that a few changes cause no delay.
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
	batchEnd time.Time // end of the latest batch period
	atOnce   int       // number of statuses in this batch period that were not held back
	paces    map[cache.ObjectName]*rate.Limiter
}

// New returns the Policy of a kind. settlePeriod is the delay of Settle.
func New(settlePeriod time.Duration) *Policy {
	return &Policy{settlePeriod: settlePeriod, paces: map[cache.ObjectName]*rate.Limiter{}}
}

// Status has the delays of one status. The zero value is a status without a change. Only one goroutine at a time may
// use a Status.
type Status struct {
	copied types.UID // UID of the copy that settles
	since  time.Time // time since which the copy settles
	due    time.Time // time at which a changed status may be written, zero if it has not changed: see Batch
}

// Written records that the latest status has been written, or that there is nothing to write.
func (s *Status) Written() { s.due = time.Time{} }

// Settle returns how much longer the first status of a copy with this UID waits, or a value that is not positive if the
// copy has settled.
func (p *Policy) Settle(s *Status, copied types.UID, now time.Time) time.Duration {
	if s.copied != copied {
		s.copied, s.since = copied, now
	}
	return p.settlePeriod - now.Sub(s.since)
}

// Batch returns how long a changed status is held back to be written with others, or 0 to write it now. A status is
// held back only once per change, so the caller must call Written after it has written the status.
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

// Forget drops the pace of a deleted object.
func (p *Policy) Forget(key cache.ObjectName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.paces, key)
}

// Len returns the number of objects whose pace is remembered.
func (p *Policy) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.paces)
}
