// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"
)

// Scheduler decides when objects are reconciled. Safe for concurrent use.
type Scheduler struct{ r *reflector }

// Enqueue adds an object to the queue, whether or not its scope is ready.
func (e Scheduler) Enqueue(key Key) { e.r.queue.Add(key) }

// EnqueueAfter adds an object to the queue after a delay.
func (e Scheduler) EnqueueAfter(key Key, after time.Duration) { e.r.queue.AddAfter(key, after) }

// EnqueueAll adds every object of every scope that is ready to the queue.
func (e Scheduler) EnqueueAll() { e.r.enqueueAll() }

// Tries returns the number of failures of an object, including its plugins, since the last success.
func (e Scheduler) Tries(key Key) int {
	return e.r.retries.count(key, Out) + e.r.pluginRetries.count(key, Out) + e.r.pluginRetries.count(key, Back)
}

// QueueLen returns the number of enqueued objects.
func (e Scheduler) QueueLen() int { return e.r.queue.Len() }

// EvaluatedOthers returns the number of evaluations of all other kinds.
func (e Scheduler) EvaluatedOthers() uint64 { return e.r.m.evaluated.Load() - e.r.evaluated.Load() }
