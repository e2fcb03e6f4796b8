// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"sync"
)

// running holds what asks something of each cluster until it is stopped. Safe for concurrent use; of and lifetime are guarded by mu.
type running[T interface{ end() }] struct {
	mu       sync.Mutex
	lifetime context.Context // ends with the manager
	of       map[string]T
}

func newRunning[T interface{ end() }]() running[T] {
	return running[T]{lifetime: context.Background(), of: map[string]T{}}
}

// begin has everything that is started from now on end with ctx.
func (r *running[T]) begin(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lifetime = ctx
}

// stop asking the cluster.
func (r *running[T]) stop(cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.end(cluster)
}

// end is stop with mu held.
func (r *running[T]) end(cluster string) {
	if known, found := r.of[cluster]; found {
		known.end()
		delete(r.of, cluster)
	}
}
