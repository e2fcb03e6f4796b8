// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"time"
)

// acceptances remembers writes that an API server stored in another form, because the same write would change nothing
// the next time. The zero value is ready to use. Safe for concurrent use.
type acceptances struct {
	mu    sync.Mutex
	byKey map[Key]acceptance
}

// acceptance has the hashes of a write and of its result.
type acceptance struct {
	asked, stored uint64
	until         time.Time // time of the next try of a write that was partly rejected, zero if it was not
}

// accept remembers how the API server normalized a write.
func (a *acceptances) accept(key Key, asked, stored uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byKey == nil {
		a.byKey = map[Key]acceptance{}
	}
	a.byKey[key] = acceptance{asked: asked, stored: stored}
}

// expire lets the acceptance of a write end at a time, when the write is tried again.
func (a *acceptances) expire(key Key, until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, ok := a.byKey[key]; ok {
		known.until = until
		a.byKey[key] = known
	}
}

// expires reports whether the acceptance of an object's write ends at some time.
func (a *acceptances) expires(key Key) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.byKey[key].until.IsZero()
}

// accepted reports whether the same write had this result before. It returns false once the acceptance has expired.
func (a *acceptances) accepted(key Key, asked, stored uint64, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.byKey[key]
	return ok && known.asked == asked && known.stored == stored && (known.until.IsZero() || now.Before(known.until))
}

// forget drops the memory of a deleted object.
func (a *acceptances) forget(key Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byKey, key)
}
