// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package mutationcache

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// Acceptances remembers writes that an API server has stored in a different form, so that the same write, which would
// change nothing, is not repeated. The zero value is ready to use. Acceptances is safe for concurrent use.
type Acceptances struct {
	mu    sync.Mutex
	byKey map[cache.ObjectName]acceptance
}

// acceptance has the hash of a write and the hash of its result.
type acceptance struct {
	asked, stored uint64
	until         time.Time // time at which a partly rejected write is retried, zero if the write was not rejected
}

// Accept remembers that the API server has stored the write with the hash asked in a form with the hash stored.
func (a *Acceptances) Accept(key cache.ObjectName, asked, stored uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byKey == nil {
		a.byKey = map[cache.ObjectName]acceptance{}
	}
	a.byKey[key] = acceptance{asked: asked, stored: stored}
}

// Expire makes the acceptance of a write end at the given time, so that the write is then retried.
func (a *Acceptances) Expire(key cache.ObjectName, until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, ok := a.byKey[key]; ok {
		known.until = until
		a.byKey[key] = known
	}
}

// Expires reports whether the acceptance of the last write to an object expires.
func (a *Acceptances) Expires(key cache.ObjectName) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.byKey[key].until.IsZero()
}

// Accepted reports whether the same write had the same result before. It returns false after the acceptance has
// expired.
func (a *Acceptances) Accepted(key cache.ObjectName, asked, stored uint64, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.byKey[key]
	return ok && known.asked == asked && known.stored == stored && (known.until.IsZero() || now.Before(known.until))
}

// Forget removes the remembered write to a deleted object.
func (a *Acceptances) Forget(key cache.ObjectName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byKey, key)
}
