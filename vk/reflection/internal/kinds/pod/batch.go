// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"sync"
	"time"
)

// During a rollout the controllers of this cluster react to each pod that becomes Ready: a ReplicaSet and a Deployment have their status
// written, and the EndpointSlices of its Services, which is reflected in turn. Statuses that change within batchPeriod of each other are
// therefore written together, so that the controllers see many at once. The first few are not held back: without a rollout there are no
// more of them.
const (
	batchPeriod = 500 * time.Millisecond
	batchAtOnce = 5
)

// batches decides when statuses are written. The zero value is ready. Safe for concurrent use.
type batches struct {
	mu     sync.Mutex
	end    time.Time // of the period that began last
	atOnce int       // statuses of that period that were not held back
}

// wait returns how long a status is held back, 0 to write it now. due is kept with the pod, and is zero as long as it has nothing to write.
func (b *batches) wait(now time.Time, due *time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !now.Before(b.end) {
		b.end, b.atOnce = now.Add(batchPeriod), 0
	}
	if due.IsZero() {
		if b.atOnce < batchAtOnce {
			b.atOnce++
			return 0
		}
		*due = b.end
	}
	if wait := due.Sub(now); wait > 0 {
		return wait
	}
	*due = time.Time{}
	return 0
}
