// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/refract-project/refract/host/document"
)

// Registry has the current chain of each kind and hook. Reading is one atomic load. It is safe for concurrent use.
type Registry struct {
	guard func(kind string, hook Hook) Guard

	// chains is replaced, never modified.
	chains     atomic.Pointer[map[slot]*Chain]
	generation atomic.Uint64

	mu          sync.Mutex
	subscribers map[int]func(kind string, hook Hook, generation uint64)
	next        int
}

type slot struct {
	kind string
	hook Hook
}

// NewRegistry returns an empty registry. The guard is used for kinds without a chain; nil means DefaultGuard. Its paths
// must be well-formed.
func NewRegistry(guard func(kind string, hook Hook) Guard) *Registry {
	if guard == nil {
		guard = func(kind string, _ Hook) Guard { return DefaultGuard(kind) }
	}
	r := &Registry{guard: guard, subscribers: map[int]func(string, Hook, uint64){}}
	r.chains.Store(&map[slot]*Chain{})
	return r
}

// Chain returns the current chain. It is never nil: the chain of other kinds is the identity with the guard. The kind
// is an opaque name.
func (r *Registry) Chain(kind string, hook Hook) *Chain {
	if c := (*r.chains.Load())[slot{kind, hook}]; c != nil {
		return c
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := (*r.chains.Load())[slot{kind, hook}]; c != nil {
		return c
	}
	return r.putChain(slot{kind, hook}, r.identityChain(kind, hook))
}

// identityChain returns a chain without plugins, guarded by the registry's guard. It panics if the guard is malformed.
func (r *Registry) identityChain(kind string, hook Hook) *Chain {
	c, err := NewChain(hook, r.guard(kind, hook))
	if err != nil {
		panic("the registry's guard for " + kind + ": " + err.Error())
	}
	return c
}

// putChain stores a chain under the current generation. The caller holds mu.
func (r *Registry) putChain(s slot, c *Chain) *Chain {
	stored := *c
	stored.generation = r.generation.Load()
	chains := maps.Clone(*r.chains.Load())
	chains[s] = &stored
	r.chains.Store(&chains)
	return &stored
}

// Run runs the current chain on the document. If the chain was swapped and one of its plugins closed meanwhile, Run
// starts over with the new chain, so that a run is of one generation. Errors are as in Chain.Run.
func (r *Registry) Run(ctx context.Context, kind string, hook Hook, doc *document.Document, env *Env) (*Outcome, error) {
	c := r.Chain(kind, hook)
	for {
		out, err := c.Run(ctx, doc, env)
		var closed *ClosedError
		if err == nil || !errors.As(err, &closed) {
			return out, err
		}
		newer := r.Chain(kind, hook)
		if newer == c {
			return out, err
		}
		c = newer
	}
}

// Swap replaces a chain and notifies the subscribers; nil stands for the identity. It returns the previous chain, nil
// if there was none. Calls in progress continue with the previous chain: to free a plugin that no chain uses any more,
// call its Close, which waits for them.
func (r *Registry) Swap(kind string, hook Hook, c *Chain) *Chain {
	r.mu.Lock()
	if c == nil {
		c = r.identityChain(kind, hook)
	}
	previous := (*r.chains.Load())[slot{kind, hook}]
	generation := r.generation.Add(1)
	r.putChain(slot{kind, hook}, c)
	var notify []func(string, Hook, uint64)
	for _, f := range r.subscribers {
		notify = append(notify, f)
	}
	r.mu.Unlock()
	for _, f := range notify {
		f(kind, hook, generation)
	}
	return previous
}

// Generation returns the number of swaps.
func (r *Registry) Generation() uint64 { return r.generation.Load() }

// Subscribe registers f, which is called after each swap, in the goroutine of Swap and without a lock, until cancel is
// called.
func (r *Registry) Subscribe(f func(kind string, hook Hook, generation uint64)) (cancel func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := r.next
	r.next++
	r.subscribers[id] = f
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.subscribers, id)
	}
}
