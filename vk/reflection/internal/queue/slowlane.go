// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package queue

import "sync"

// slowInARow is the maximum number of other keys that are taken in a row while a key in the slow lane is waiting. If it
// were smaller, changes by users would wait longer while a plugin is being replaced.
const slowInARow = 64

// slowLane contains keys that are evaluated again only because a plugin has changed. A key leaves the lane when its
// object changes. demote is safe for concurrent use. All other calls must be serialized by the caller.
type slowLane struct {
	keys    []Key // in order; includes keys that have left the lane
	waiting map[Key]bool

	mu      sync.Mutex
	demoted map[Key]bool
}

// demote makes the next push of a key add the key to the slow lane.
func (l *slowLane) demote(key Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.demoted == nil {
		l.demoted = map[Key]bool{}
	}
	l.demoted[key] = true
}

// takeDemoted reports whether a key has been demoted since the last call.
func (l *slowLane) takeDemoted(key Key) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	demoted := l.demoted[key]
	delete(l.demoted, key)
	return demoted
}

func (l *slowLane) push(key Key) {
	if l.waiting == nil {
		l.waiting = map[Key]bool{}
	}
	l.keys = append(l.keys, key)
	l.waiting[key] = true
}

// leave removes a key from the lane, and reports whether it was in the lane.
func (l *slowLane) leave(key Key) bool {
	if !l.waiting[key] {
		return false
	}
	delete(l.waiting, key)
	return true
}

func (l *slowLane) len() int { return len(l.waiting) }

// pop removes the first key and returns it. The lane must not be empty.
func (l *slowLane) pop() Key {
	for {
		if key := pop(&l.keys); l.leave(key) {
			return key
		}
	}
}
