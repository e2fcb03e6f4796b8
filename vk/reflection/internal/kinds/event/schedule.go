// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/refract-project/refract/vk/reflection/internal/queue"
)

const (
	// TickInterval is the interval between checks of the schedule.
	TickInterval = 200 * time.Millisecond
	// calmTurns and busyTurns are the numbers of Events that are enqueued per tick: 20 (100 per second) normally, and 1
	// (5 per second) under load. A rollout of 1,000 pods causes about 5,000 Events that report normal operation. A
	// higher number under load would slow the rollout down. A lower number in normal times would delay the Events that
	// users see.
	calmTurns, busyTurns = 20, 1
	// The load counts as high from busyFrom evaluations of other kinds per tick (10 per tick is 50 per second). Status
	// updates of running pods stay below this number.
	busyFrom = 10
)

// schedule contains the keys of Events that can wait. Each key is in the schedule at most once, with the date of the
// first call of add. A schedule is safe for concurrent use.
type schedule struct {
	mu      sync.Mutex
	dates   dates
	planned map[queue.Key]bool
}

type date struct {
	key queue.Key
	at  time.Time
}

func newSchedule() *schedule { return &schedule{planned: map[queue.Key]bool{}} }

// add schedules a key for the given time, unless the key is already scheduled.
func (a *schedule) add(key queue.Key, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.planned[key] {
		return
	}
	a.planned[key] = true
	heap.Push(&a.dates, date{key, at})
}

// due removes and returns the keys whose time has come, beginning with the key that has waited longest. most limits the
// number of keys.
func (a *schedule) due(now time.Time, most int) (keys []queue.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(keys) < most && len(a.dates) > 0 && !a.dates[0].at.After(now) {
		next, _ := heap.Pop(&a.dates).(date)
		delete(a.planned, next.key)
		keys = append(keys, next.key)
	}
	return keys
}

func (a *schedule) len() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.dates)
}

// dates is a heap of scheduled keys, ordered by time.
type dates []date

func (d dates) Len() int           { return len(d) }
func (d dates) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d dates) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *dates) Push(x any)        { *d = append(*d, x.(date)) }
func (d *dates) Pop() any {
	last := len(*d) - 1
	next := (*d)[last]
	(*d)[last] = date{}
	*d = (*d)[:last]
	return next
}

// Run implements engine.Handler. It enqueues scheduled Events. While other kinds have many evaluations, it enqueues
// fewer of them.
func (h *handler) Run(ctx context.Context) {
	ticker := h.Clock().NewTicker(TickInterval)
	defer ticker.Stop()
	before := uint64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		others := h.EvaluatedOthers()
		turns := calmTurns
		if others-before >= busyFrom {
			turns = busyTurns
		}
		before = others
		for _, key := range h.schedule.due(h.Clock().Now(), max(turns-h.Queue.Len(), 0)) {
			h.Queue.Add(key)
		}
	}
}
