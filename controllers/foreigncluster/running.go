// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"sync"
)

// running holds the running probe of each cluster. Safe for concurrent use; of and lifetime are guarded by mu.
type running[T interface{ end() }] struct {
	mu       sync.Mutex
	lifetime context.Context // probes end when it is done, with the manager
	of       map[string]T
}

func newRunning[T interface{ end() }]() running[T] {
	return running[T]{lifetime: context.Background(), of: map[string]T{}}
}

// begin sets the context that ends all probes that are started from now on.
func (r *running[T]) begin(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lifetime = ctx
}

// stop ends the probe of the cluster.
func (r *running[T]) stop(cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(cluster)
}

// end is like stop, but mu must be held.
func (r *running[T]) end(cluster string) {
	if known, found := r.of[cluster]; found {
		known.end()
		delete(r.of, cluster)
	}
}
