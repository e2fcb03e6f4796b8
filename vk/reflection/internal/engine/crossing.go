// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync"
	"time"
)

// Direction is a direction of reflection.
type Direction string

const (
	// Out is the direction to the provider.
	Out Direction = "out"
	// Back is the direction to this cluster.
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

// sameChange is the longest delay of a requeue that still belongs to the change that caused it.
const sameChange = time.Minute

// arrivals records when objects began to wait for a successful evaluation. A change that fails and is retried keeps its
// first time. Safe for concurrent use.
type arrivals struct {
	mu sync.Mutex
	at map[Key]time.Time
}

func newArrivals() *arrivals { return &arrivals{at: map[Key]time.Time{}} }

// note records that an object has changed, unless an earlier change of it still waits.
func (a *arrivals) note(key Key, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, waits := a.at[key]; !waits {
		a.at[key] = now
	}
}

// since returns the time at which an object began to wait.
func (a *arrivals) since(key Key) (since time.Time, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, known = a.at[key]
	return since, known
}

// take returns the time at which an object began to wait, and forgets it.
func (a *arrivals) take(key Key) (since time.Time, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	since, known = a.at[key]
	delete(a.at, key)
	return since, known
}

// passed records how long the change of an object took to cross, if it crossed.
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
