// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"maps"
	"sync"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
)

// testChains are plugin chains written in Go, so that tests say beside their story what a chain does.
type testChains struct {
	mu         sync.Mutex
	hooks      map[string]chainFunc
	subscriber func(string, host.Hook, uint64)
	generation uint64
}

type chainFunc func(doc document.Node, env *host.Env) (*host.Outcome, error)

func newTestChains() *testChains {
	c := &testChains{hooks: map[string]chainFunc{}}
	c.hooks["Service"+host.Outgoing.String()] = mutateService
	return c
}

// mutateService drops what the consumer's API server has allocated.
func mutateService(doc document.Node, _ *host.Env) (*host.Outcome, error) {
	_, err := doc.Remove("spec.clusterIP\nspec.clusterIPs\nspec.ipFamilies\nspec.ports.*.nodePort")
	return &host.Outcome{}, err
}

func (c *testChains) Run(_ context.Context, kind string, hook host.Hook, doc *document.Document, env *host.Env) (*host.Outcome, error) {
	c.mu.Lock()
	f := c.hooks[kind+hook.String()]
	c.mu.Unlock()
	if f == nil {
		return &host.Outcome{}, nil
	}
	return f(doc.Root(), env)
}

func (c *testChains) Subscribe(f func(string, host.Hook, uint64)) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscriber = f
	return func() { c.mu.Lock(); c.subscriber = nil; c.mu.Unlock() }
}

// swap puts another chain in place; nil is one that changes nothing.
func (c *testChains) swap(kind string, hook host.Hook, f chainFunc) {
	c.mu.Lock()
	c.hooks = maps.Clone(c.hooks)
	c.hooks[kind+hook.String()] = f
	c.generation++
	tell, generation := c.subscriber, c.generation
	c.mu.Unlock()
	if tell != nil {
		tell(kind, hook, generation)
	}
}
