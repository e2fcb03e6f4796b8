// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"time"
)

// Direction of reflection.
type Direction string

const (
	// Out is to the provider.
	Out Direction = "out"
	// Back is to this cluster.
	Back Direction = "back"
)

// Wrote records that an object was written on the other side.
func (w *Worker) Wrote(to Direction) { w.crossed(to, "written") }

// Deleted records that an object was deleted on the other side.
func (w *Worker) Deleted(to Direction) { w.crossed(to, "deleted") }

func (w *Worker) crossed(to Direction, result string) {
	w.Result = result
	if to == Out {
		w.out = true
	} else {
		w.back = true
	}
}

// sameChange is for how long another look is about the change that asked for it.
const sameChange = time.Minute

// arrivals are the times since when objects have waited to be evaluated with success: a change that fails and is tried again has
// waited all the while. Safe for concurrent use.
type arrivals struct {
	mu sync.Mutex
	at map[Key]time.Time
}

func newArrivals() *arrivals { return &arrivals{at: map[Key]time.Time{}} }

// note that something has changed, unless that waits already.
func (a *arrivals) note(key Key, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, waits := a.at[key]; !waits {
		a.at[key] = now
	}
}

// since returns since when an object has waited.
func (a *arrivals) since(key Key) (since time.Time, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, known = a.at[key]
	return since, known
}

// take returns since when an object has waited, and forgets it.
func (a *arrivals) take(key Key) (since time.Time, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, known = a.at[key]
	delete(a.at, key)
	return since, known
}

// passed records how long the change of an object has taken to cross, if it has.
func (r *reflector) passed(w *Worker, key Key) {
	since, known := r.arrivals.take(key)
	if !known {
		return
	}
	seconds := r.m.options.Clock.Since(since).Seconds()
	if w.out {
		r.m.metrics.crossing.WithLabelValues(r.kind.Name, string(Out)).Observe(seconds)
	}
	if w.back {
		r.m.metrics.crossing.WithLabelValues(r.kind.Name, string(Back)).Observe(seconds)
	}
}
