// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package mutationcache

import (
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// Acceptances remembers writes that an API server stored in a different form. Such a write is not repeated, because it
// would not change anything. The zero value is ready for use. Acceptances is safe for concurrent use.
type Acceptances struct {
	mu    sync.Mutex
	byKey map[cache.ObjectName]acceptance
}

// acceptance contains a hash of a write and a hash of its result.
type acceptance struct {
	asked, stored uint64
	until         time.Time // time at which a partly rejected write is retried, or zero if no part was rejected
}

// Accept records that the API server stored the write with the hash asked in a form that has the hash stored.
func (a *Acceptances) Accept(key cache.ObjectName, asked, stored uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byKey == nil {
		a.byKey = map[cache.ObjectName]acceptance{}
	}
	a.byKey[key] = acceptance{asked: asked, stored: stored}
}

// Expire sets the time at which the acceptance of the last write ends. The write is then retried.
func (a *Acceptances) Expire(key cache.ObjectName, until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if known, ok := a.byKey[key]; ok {
		known.until = until
		a.byKey[key] = known
	}
}

// Expires reports whether the acceptance of the last write of an object will expire.
func (a *Acceptances) Expires(key cache.ObjectName) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.byKey[key].until.IsZero()
}

// Accepted reports whether the last write of an object was the same and had the same result. It returns false if the
// acceptance has expired.
func (a *Acceptances) Accepted(key cache.ObjectName, asked, stored uint64, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.byKey[key]
	return ok && known.asked == asked && known.stored == stored && (known.until.IsZero() || now.Before(known.until))
}

// Forget removes the record of a deleted object.
func (a *Acceptances) Forget(key cache.ObjectName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.byKey, key)
}
