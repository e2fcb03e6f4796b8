// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"sync"
)

// runningProbes contains the running probe of each cluster. It is safe for concurrent use: mu guards the other fields.
type runningProbes[T interface{ stopPinger() }] struct {
	mu       sync.Mutex
	lifetime context.Context // probes end when this context ends, i.e. with the manager
	of       map[string]T
}

func newRunningProbes[T interface{ stopPinger() }]() runningProbes[T] {
	return runningProbes[T]{lifetime: context.Background(), of: map[string]T{}}
}

// setLifetime sets the context of all probes that are started from now on. When it ends, they end.
func (r *runningProbes[T]) setLifetime(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lifetime = ctx
}

// stopProbe ends the probe of the cluster.
func (r *runningProbes[T]) stopProbe(cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopProbeLocked(cluster)
}

// stopProbeLocked does the same as stopProbe, but the caller holds mu.
func (r *runningProbes[T]) stopProbeLocked(cluster string) {
	if known, found := r.of[cluster]; found {
		known.stopPinger()
		delete(r.of, cluster)
	}
}
