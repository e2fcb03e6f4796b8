// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflectiontest

import (
	"context"
	"maps"
	"sync"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
)

// Chains contains plugin chains that are written in Go, so that a test can define what its chain does.
type Chains struct {
	mu         sync.Mutex
	Hooks      map[string]ChainFunc
	subscriber func(string, host.Hook, uint64)
	generation uint64
}

type ChainFunc func(doc document.Node, env *host.Env) (*host.Outcome, error)

func NewChains() *Chains {
	c := &Chains{Hooks: map[string]ChainFunc{}}
	c.Hooks["Service"+host.Outgoing.String()] = MutateService
	return c
}

// MutateService removes the values that the consumer's API server has assigned to a Service.
func MutateService(doc document.Node, _ *host.Env) (*host.Outcome, error) {
	_, err := doc.Remove("spec.clusterIP\nspec.clusterIPs\nspec.ipFamilies\nspec.ports.*.nodePort")
	return &host.Outcome{}, err
}

func (c *Chains) Run(_ context.Context, kind string, hook host.Hook, doc *document.Document, env *host.Env) (*host.Outcome, error) {
	c.mu.Lock()
	f := c.Hooks[kind+hook.String()]
	c.mu.Unlock()
	if f == nil {
		return &host.Outcome{}, nil
	}
	return f(doc.Root(), env)
}

func (c *Chains) Subscribe(f func(string, host.Hook, uint64)) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subscriber = f
	return func() { c.mu.Lock(); c.subscriber = nil; c.mu.Unlock() }
}

// Swap replaces a chain. If f is nil, the new chain does not change objects.
func (c *Chains) Swap(kind string, hook host.Hook, f ChainFunc) {
	c.mu.Lock()
	c.Hooks = maps.Clone(c.Hooks)
	c.Hooks[kind+hook.String()] = f
	c.generation++
	notify, generation := c.subscriber, c.generation
	c.mu.Unlock()
	if notify != nil {
		notify(kind, hook, generation)
	}
}
