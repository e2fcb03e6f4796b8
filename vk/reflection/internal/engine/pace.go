// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits on writes of one object's status on behalf of the provider: a burst, as for a pod that starts, then one per
// second. They bound the load that a provider with a constantly changing status causes on this cluster's API server.
// The latest status is always shown.
const (
	statusPace  = 1 // per second
	StatusBurst = 10
)

// paces has the rate limiter of each object. The zero value is ready to use. Safe for concurrent use.
type paces struct {
	mu    sync.Mutex
	byKey map[Key]*rate.Limiter
}

// wait takes a token for a write, or returns the delay until one is available.
func (p *paces) wait(key Key, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byKey == nil {
		p.byKey = map[Key]*rate.Limiter{}
	}
	limiter := p.byKey[key]
	if limiter == nil {
		limiter = rate.NewLimiter(statusPace, StatusBurst)
		p.byKey[key] = limiter
	}
	turn := limiter.ReserveN(now, 1)
	wait := turn.DelayFrom(now)
	if wait > 0 {
		turn.CancelAt(now)
	}
	return wait
}

// forget drops the rate limiter of a deleted object.
func (p *paces) forget(key Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byKey, key)
}
