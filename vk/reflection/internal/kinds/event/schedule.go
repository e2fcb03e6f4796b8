// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/refract-project/refract/vk/reflection/internal/engine"
)

const (
	// Tick is how often the schedule is checked.
	Tick = 200 * time.Millisecond
	// calmTurns and busyTurns are how many Events get their turn then: 100 or 5 a second. A rollout of 1,000 pods makes
	// about 5,000 Events that all say "as expected"; more of them meanwhile would slow it down, fewer in calm times would
	// delay what users see of a pod.
	calmTurns, busyTurns = 20, 1
	// busyFrom evaluations of other kinds since the last tick (50 a second) are more than the life of pods that run makes.
	busyFrom = 10
)

// schedule is what can wait: each key once, at its first date. Safe for concurrent use.
type schedule struct {
	mu      sync.Mutex
	dates   dates
	planned map[engine.Key]bool
}

type date struct {
	key engine.Key
	at  time.Time
}

func newSchedule() *schedule { return &schedule{planned: map[engine.Key]bool{}} }

// add plans a key for a time, unless it has a date already.
func (a *schedule) add(key engine.Key, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.planned[key] {
		return
	}
	a.planned[key] = true
	heap.Push(&a.dates, date{key, at})
}

// due takes off the keys whose time has come, the longest waiting first, and not more than most.
func (a *schedule) due(now time.Time, most int) (keys []engine.Key) {
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

// dates is a heap.
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

// Run gives Events that can wait their turn: few while other objects have much to do.
func (h *handler) Run(ctx context.Context) {
	ticker := h.Clock().NewTicker(Tick)
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
		for _, key := range h.schedule.due(h.Clock().Now(), max(turns-h.QueueLen(), 0)) {
			h.Enqueue(key)
		}
	}
}
