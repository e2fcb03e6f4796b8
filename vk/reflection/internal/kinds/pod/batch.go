// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/refract-project/refract/internal/podend"
	"github.com/refract-project/refract/vk/pods"
)

// During a rollout the controllers of this cluster react to each pod that becomes Ready: they update the status of its
// ReplicaSet and Deployment, and the EndpointSlices of its Services, which are reflected in turn. Statuses that change
// within batchPeriod of each other are therefore written together, so that the controllers see many at once. The first
// batchAtOnce of them are not held back, so a few changes cause no delay.
const (
	batchPeriod = 500 * time.Millisecond
	batchAtOnce = 5
)

// batches decides when statuses are written. The zero value is ready to use. Safe for concurrent use.
type batches struct {
	mu     sync.Mutex
	end    time.Time // end of the latest period
	atOnce int       // number of statuses in this period that were not held back
}

// wait returns how long a status is held back, or 0 to write it now. It sets due, which is zero for a new change, to
// the time at which the status may be written. The caller resets due when the status has been written, or there is
// nothing to write any more.
func (b *batches) wait(now time.Time, due *time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !now.Before(b.end) {
		b.end, b.atOnce = now.Add(batchPeriod), 0
	}
	switch {
	case !due.IsZero():
	case b.atOnce < batchAtOnce:
		b.atOnce++
		*due = now
	default:
		*due = b.end
	}
	return max(0, due.Sub(now))
}

// isUrgent reports whether a status does not wait for the statuses of other pods. A pod that is no longer Ready must
// not get traffic, and the end of a pod could no longer be shown once the provider's pod is gone. A nil status stands
// for the present one.
func isUrgent(v *podView, next map[string]any) bool {
	if next == nil {
		next = v.status
	}
	return v.local.GetDeletionTimestamp() != nil || podend.Finished(pods.Phase(next)) || isReady(v.status) && !isReady(next)
}

func isReady(status map[string]any) bool {
	return pods.Condition(status, corev1.PodReady)["status"] == string(corev1.ConditionTrue)
}
