// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// newQueue creates the queue of a reflector. There is no rate limit over all objects: an object that fails must not
// slow down the others.
func newQueue(clock clock.WithTicker, isUrgent func(Key) bool, arrived func(Key)) workqueue.TypedDelayingInterface[Key] {
	lanes := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[Key]{Clock: clock, Queue: &lanes{isUrgent: isUrgent, arrived: arrived}})
	return workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[Key]{Clock: clock, Queue: lanes})
}

// urgentInARow is the number of urgent keys that are taken before one of the others, if both wait.
const urgentInARow = 8

// lanes is a queue with a fast lane for urgent keys: during a rollout, the status of a running pod does not wait for
// the creation of hundreds of pods, and neither does a deletion. The caller serializes calls.
type lanes struct {
	isUrgent     func(Key) bool
	arrived      func(Key)
	urgent, rest []Key
	inARow       int
}

// Touch implements workqueue.Queue. A waiting item keeps its place.
func (l *lanes) Touch(Key) {}

// Push implements workqueue.Queue.
func (l *lanes) Push(key Key) {
	l.arrived(key)
	if l.isUrgent(key) {
		l.urgent = append(l.urgent, key)
	} else {
		l.rest = append(l.rest, key)
	}
}

// Len implements workqueue.Queue.
func (l *lanes) Len() int { return len(l.urgent) + len(l.rest) }

// Pop implements workqueue.Queue.
func (l *lanes) Pop() Key {
	if len(l.urgent) == 0 || len(l.rest) > 0 && l.inARow >= urgentInARow {
		l.inARow = 0
		return pop(&l.rest)
	}
	l.inARow++
	return pop(&l.urgent)
}

func pop(lane *[]Key) Key {
	first := (*lane)[0]
	(*lane)[0] = Key{} // releases the strings of the key
	*lane = (*lane)[1:]
	return first
}

// isUrgent reports whether the object of a key need not be created: it has a copy, or is being deleted.
func (r *reflector) isUrgent(key Key) bool {
	t := r.m.extension(key.Namespace)
	if t == nil || r.kind.Reverse {
		return false
	}
	s := t.of(r.kind.Name)
	if s == nil {
		return false
	}
	if s.CachedCopy(key.Name) != nil {
		return true
	}
	object := s.objects.Get(key.Namespace, key.Name)
	return object == nil || raw.Nested(object.Object, "metadata", "deletionTimestamp") != nil
}
