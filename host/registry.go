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

// Registry has the current chain of each kind and hook. Reading is one atomic load. Safe for concurrent use.
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

// NewRegistry returns an empty registry. The guard is for kinds without a chain; nil means DefaultGuard for outgoing
// objects. Its paths must be well-formed.
func NewRegistry(guard func(kind string, hook Hook) Guard) *Registry {
	if guard == nil {
		guard = func(kind string, _ Hook) Guard { return DefaultGuard(kind) }
	}
	r := &Registry{guard: guard, subscribers: map[int]func(string, Hook, uint64){}}
	r.chains.Store(&map[slot]*Chain{})
	return r
}

// Chain returns the current chain, never nil: a kind without one gets the identity with the guard. The kind is an opaque name.
func (r *Registry) Chain(kind string, hook Hook) *Chain {
	if c := (*r.chains.Load())[slot{kind, hook}]; c != nil {
		return c
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := (*r.chains.Load())[slot{kind, hook}]; c != nil {
		return c
	}
	return r.put(slot{kind, hook}, r.identity(kind, hook))
}

// identity passes objects unchanged; if the guard is malformed, it passes none.
func (r *Registry) identity(kind string, hook Hook) *Chain {
	c, err := NewChain(hook, r.guard(kind, hook))
	if err != nil {
		panic("the registry's guard for " + kind + ": " + err.Error())
	}
	return c
}

// put stores a chain under its generation. Under mu.
func (r *Registry) put(s slot, c *Chain) *Chain {
	stored := *c
	stored.generation = r.generation.Load()
	chains := maps.Clone(*r.chains.Load())
	chains[s] = &stored
	r.chains.Store(&chains)
	return &stored
}

// Run runs the present chain on the document: if it was swapped and its plugins closed underneath, the one that is present
// then. A run is of one generation from start to end. Errors as of Chain.Run.
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

// Swap replaces a chain, nil for the identity, and notifies the subscribers. It returns the previous chain, nil if
// there was none. Calls that began go on with it: to free a plugin that no chain has any more, Close it, which waits for them.
func (r *Registry) Swap(kind string, hook Hook, c *Chain) *Chain {
	r.mu.Lock()
	if c == nil {
		c = r.identity(kind, hook)
	}
	previous := (*r.chains.Load())[slot{kind, hook}]
	generation := r.generation.Add(1)
	r.put(slot{kind, hook}, c)
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

// Subscribe has f called after each swap, in the goroutine of Swap and with no lock held, until cancel is called.
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
