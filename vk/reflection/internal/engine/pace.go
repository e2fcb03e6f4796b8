// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// How often the status of one object is written because of the provider: some changes at once, as there are while a pod starts,
// then one a second. A provider that changes a status all the time costs this cluster's API server no more than that, and what
// is shown is the latest.
const (
	statusPace  = 1 // a second
	StatusBurst = 10
)

// paces are the paces of objects. The zero value is ready. Safe for concurrent use.
type paces struct {
	mu    sync.Mutex
	byKey map[Key]*rate.Limiter
}

// wait takes a turn to write, or returns after which time there is one.
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

// forget drops the pace of an object that is gone.
func (p *paces) forget(key Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byKey, key)
}
