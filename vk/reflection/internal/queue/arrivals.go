// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"sync"
	"time"
)

// arrivals records the times since which objects have been waiting for a successful evaluation. If the evaluation of a
// change fails and is retried, the time of the first attempt is kept. arrivals is safe for concurrent use.
type arrivals struct {
	mu sync.Mutex
	at map[Key]time.Time
}

func newArrivals() *arrivals { return &arrivals{at: map[Key]time.Time{}} }

// note records that an object has changed, unless an earlier change of the object is still waiting.
func (a *arrivals) note(key Key, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, waits := a.at[key]; !waits {
		a.at[key] = now
	}
}

// Since returns the time since which an object has been waiting.
func (a *arrivals) Since(key Key) (since time.Time, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, known = a.at[key]
	return since, known
}

// Take returns the time since which an object has been waiting, and removes the record.
func (a *arrivals) Take(key Key) (since time.Time, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, known = a.at[key]
	delete(a.at, key)
	return since, known
}
