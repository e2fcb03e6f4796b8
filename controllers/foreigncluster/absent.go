// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"sync"
	"time"
)

// absencePeriod is how long a missing object is not read again. Without it, every heartbeat of a consumer would cause
// a read, and heartbeats arrive every few seconds.
const absencePeriod = time.Minute

// absences records missing objects. It is safe for concurrent use.
type absences struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// isKnown reports whether the object was missing when it was last read, less than a minute ago.
func (a *absences) isKnown(name string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Before(a.until[name])
}

// recordAbsence records whether the object is missing.
func (a *absences) recordAbsence(name string, absent bool, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if absent {
		a.until[name] = now.Add(absencePeriod)
		return
	}
	delete(a.until, name)
}
