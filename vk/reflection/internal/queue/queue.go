// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"sync"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/refract-project/refract/vk/reflection/internal/breaker"
	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/mutationcache"
)

// Key identifies an object of this cluster by its namespace and name.
type Key = cache.ObjectName

// Queue contains the objects of one kind that are waiting for an evaluation, and determines when an object is retried.
// It is safe for concurrent use.
type Queue struct {
	workqueue.TypedDelayingInterface[Key]
	Retries       retries
	PluginRetries retries                         // see newPluginRetries
	PartRetries   workqueue.TypedRateLimiter[Key] // retries of partially rejected writes (see RetryPart)
	Arrivals      *arrivals                       // since when objects have been waiting
	clock         clock.WithTicker

	mu     sync.Mutex
	parked map[Key]struct{} // objects that wait until the provider is reachable
	slow   slowLane
}

// New returns an empty Queue. isUrgent reports whether an object overtakes objects that are not urgent. arrived is
// called for each object that is enqueued. It must not block.
func New(clock clock.WithTicker, isUrgent func(Key) bool, arrived func(Key)) *Queue {
	q := &Queue{Retries: newRetries(), PluginRetries: newPluginRetries(), Arrivals: newArrivals(), clock: clock, parked: map[Key]struct{}{}}
	q.PartRetries = workqueue.NewTypedItemExponentialFailureRateLimiter[Key](FirstPartRetry, mostPartRetry)
	q.TypedDelayingInterface = newQueue(clock, &q.slow, isUrgent, func(key Key) {
		q.Arrivals.note(key, clock.Now())
		arrived(key)
	})
	return q
}

// Reevaluate enqueues an object because its plugins have changed. Objects that have changed themselves are evaluated
// first.
func (q *Queue) Reevaluate(key Key) {
	q.slow.demote(key)
	q.Add(key)
}

// Forget resets the counts of failed plugins and of partially rejected writes of a deleted object. Its other failures
// are still counted, because the object may be created again.
func (q *Queue) Forget(key Key) {
	q.PartRetries.Forget(key)
	q.PluginRetries.Forget(key)
}

// Tries returns how often an object has failed since its last success, including failures of its plugins.
func (q *Queue) Tries(key Key) int {
	return q.Retries.Count(key, evaluation.Out) + q.PluginRetries.Count(key, evaluation.Out) + q.PluginRetries.Count(key, evaluation.Back)
}

// Writing announces a write of an object or its copy. The caller must call done after it has recorded the result of the
// write. If another client has changed the object in the meantime, done enqueues it again.
func (q *Queue) Writing(writes *mutationcache.Cache, key Key) (done func()) {
	writes.Begin(key)
	return func() {
		if writes.End(key) {
			q.Add(key)
		}
	}
}

// Park stores an object that is not evaluated before Unpark or Resume is called. It is used while the provider is
// unreachable.
func (q *Queue) Park(key Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.parked[key] = struct{}{}
}

// Unpark enqueues the parked objects again, with backoff. It is called if the provider turns out to be reachable, so
// that the errors of these objects must have had another cause.
func (q *Queue) Unpark() {
	for key := range q.takeParked() {
		q.AddAfter(key, q.Retries.Next(key, evaluation.Out))
	}
}

// Resume enqueues the parked objects again, spread over some time. It is called when the provider has become reachable
// again.
func (q *Queue) Resume() {
	waiting := q.takeParked()
	for key := range waiting {
		q.AddAfter(key, breaker.Turn(len(waiting)))
	}
}

func (q *Queue) takeParked() map[Key]struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.parked
	q.parked = map[Key]struct{}{}
	return waiting
}

// newQueue creates the workqueue of a Queue. The workqueue has no overall rate limit, because an object that fails must
// not delay other objects.
func newQueue(clock clock.WithTicker, slow *slowLane, isUrgent func(Key) bool, arrived func(Key)) workqueue.TypedDelayingInterface[Key] {
	lanes := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[Key]{Clock: clock, Queue: &lanes{slow: slow, isUrgent: isUrgent, arrived: arrived}})
	return workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[Key]{Clock: clock, Queue: lanes})
}

// urgentInARow is the maximum number of urgent keys that are taken in a row while another key is waiting.
const urgentInARow = 8

// lanes is a queue with three lanes. The fast lane is for urgent keys, so that status updates and deletions during a
// rollout do not have to wait for the creation of hundreds of pods. The slow lane is for keys whose objects have not
// changed. lanes is not safe for concurrent use.
type lanes struct {
	isUrgent     func(Key) bool
	arrived      func(Key)
	urgent, rest []Key
	inARow       int
	slow         *slowLane
	fastInARow   int
}

// Touch implements workqueue.Queue. An item that is already waiting keeps its place, unless it leaves the slow lane.
func (l *lanes) Touch(key Key) {
	if !l.slow.takeDemoted(key) && l.slow.leave(key) {
		l.pushFast(key)
	}
}

// Push implements workqueue.Queue. It adds a key to its lane.
func (l *lanes) Push(key Key) {
	l.arrived(key)
	if l.slow.takeDemoted(key) {
		l.slow.push(key)
		return
	}
	l.pushFast(key)
}

func (l *lanes) pushFast(key Key) {
	if l.isUrgent(key) {
		l.urgent = append(l.urgent, key)
	} else {
		l.rest = append(l.rest, key)
	}
}

// Len implements workqueue.Queue.
func (l *lanes) Len() int { return len(l.urgent) + len(l.rest) + l.slow.len() }

// Pop implements workqueue.Queue. It takes urgent keys first, and keys in the slow lane last, but does not starve any
// lane.
func (l *lanes) Pop() Key {
	if fast := len(l.urgent) + len(l.rest); l.slow.len() > 0 && (fast == 0 || l.fastInARow >= slowInARow) {
		l.fastInARow = 0
		return l.slow.pop()
	}
	l.fastInARow++
	if len(l.urgent) == 0 || len(l.rest) > 0 && l.inARow >= urgentInARow {
		l.inARow = 0
		return pop(&l.rest)
	}
	l.inARow++
	return pop(&l.urgent)
}

func pop(lane *[]Key) Key {
	first := (*lane)[0]
	(*lane)[0] = Key{} // free the strings of the key
	*lane = (*lane)[1:]
	return first
}
