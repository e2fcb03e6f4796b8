// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/refract-project/refract/host/document"
)

// Registry contains the current chain for each kind and hook. Reading a chain is one atomic load. Registry is safe for
// concurrent use.
type Registry struct {
	guard func(kind string, hook Hook) Guard

	// The map in chains is replaced and never modified.
	chains     atomic.Pointer[map[ChainKey]*Chain]
	generation atomic.Uint64

	mu          sync.Mutex
	subscribers map[int]func(kind string, hook Hook, generation uint64)
	next        int
}

// ChainKey identifies a chain of a Registry.
type ChainKey struct {
	Kind string
	Hook Hook
}

// NewRegistry returns an empty Registry. guard returns the guard for kinds without a chain. If guard is nil,
// DefaultGuard is used. The paths of the guard must be valid.
func NewRegistry(guard func(kind string, hook Hook) Guard) *Registry {
	if guard == nil {
		guard = func(kind string, _ Hook) Guard { return DefaultGuard(kind) }
	}
	r := &Registry{guard: guard, subscribers: map[int]func(string, Hook, uint64){}}
	r.chains.Store(&map[ChainKey]*Chain{})
	return r
}

// Chain returns the current chain. For a kind without a chain, it returns a chain that has only the guard, so the
// result is never nil. The kind can be any name.
func (r *Registry) Chain(kind string, hook Hook) *Chain {
	if c := (*r.chains.Load())[ChainKey{kind, hook}]; c != nil {
		return c
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := (*r.chains.Load())[ChainKey{kind, hook}]; c != nil {
		return c
	}
	return r.putChain(ChainKey{kind, hook}, r.identityChain(kind, hook))
}

// identityChain returns a chain without plugins, with the registry's guard. It panics if the guard is malformed.
func (r *Registry) identityChain(kind string, hook Hook) *Chain {
	c, err := NewChain(hook, r.guard(kind, hook))
	if err != nil {
		panic("the registry's guard for " + kind + ": " + err.Error())
	}
	return c
}

// putChain stores a chain with the current generation. r.mu must be held.
func (r *Registry) putChain(key ChainKey, c *Chain) *Chain {
	chains := maps.Clone(*r.chains.Load())
	chains[key] = c.inGeneration(r.generation.Load())
	r.chains.Store(&chains)
	return chains[key]
}

func (c *Chain) inGeneration(generation uint64) *Chain {
	stored := *c
	stored.generation = generation
	return &stored
}

// Run runs the current chain on the document. If the chain was swapped and one of its plugins was closed during the
// run, Run starts again with the new chain, so that every result comes from one generation of the chain. Run returns
// the same errors as Chain.Run.
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

// Swap replaces a chain and notifies the subscribers. If c is nil, the chain is replaced by one without plugins. Swap
// returns the previous chain, or nil if there was none. Running calls continue with the previous chain. To free a
// plugin that is no longer in any chain, call its method Close, which waits for these calls.
func (r *Registry) Swap(kind string, hook Hook, c *Chain) *Chain {
	key := ChainKey{kind, hook}
	return r.SwapAll(map[ChainKey]*Chain{key: c})[key]
}

// SwapAll replaces several chains at once, so that no run sees only some of them replaced; see Swap. It returns the
// previous chains.
func (r *Registry) SwapAll(chains map[ChainKey]*Chain) (previous map[ChainKey]*Chain) {
	if len(chains) == 0 {
		return nil
	}
	r.mu.Lock()
	generation := r.generation.Add(1)
	previous, next := map[ChainKey]*Chain{}, maps.Clone(*r.chains.Load())
	for key, c := range chains {
		if c == nil {
			c = r.identityChain(key.Kind, key.Hook)
		}
		previous[key], next[key] = next[key], c.inGeneration(generation)
	}
	r.chains.Store(&next)
	notify := slices.Collect(maps.Values(r.subscribers))
	r.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(chains), compareKeys) {
		for _, f := range notify {
			f(key.Kind, key.Hook, generation)
		}
	}
	return previous
}

func compareKeys(a, b ChainKey) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Hook, b.Hook))
}

// Generation returns the number of swaps so far.
func (r *Registry) Generation() uint64 { return r.generation.Load() }

// Subscribe registers f, which is called after each swap until cancel is called. It is called in the goroutine of
// Swap, without a lock.
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
