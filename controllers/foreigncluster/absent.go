// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"sync"
	"time"
)

// absence is how long what was not there is not asked for again: heartbeats come every few seconds, from each consumer.
const absence = time.Minute

// absences remember what was not there. Safe for concurrent use.
type absences struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// known reports whether something was not there a moment ago.
func (a *absences) known(name string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return now.Before(a.until[name])
}

// note whether something is there.
func (a *absences) note(name string, absent bool, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if absent {
		a.until[name] = now.Add(absence)
		return
	}
	delete(a.until, name)
}
