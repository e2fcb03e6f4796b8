// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/refract-project/refract/host"
)

type chainKey struct {
	kind string
	hook host.Hook
}

func comparePlugins(a, b *running) int {
	return cmp.Or(cmp.Compare(a.options.Priority, b.options.Priority), strings.Compare(a.name, b.name))
}

// composeChain returns the plugins of a chain in order.
func (c *Chains) composeChain(key chainKey, extra []*running) (plugins []*host.Plugin) {
	replaced := map[string]bool{}
	for _, r := range extra {
		if r.options.Replaces != "" && slices.Contains(r.kinds, key.kind) {
			replaced[r.options.Replaces] = true
		}
	}
	for _, r := range c.defaultsOf(key.kind) {
		if !replaced[r.name] && r.matchesChain(key.kind, key.hook) {
			plugins = append(plugins, r.plugin)
		}
	}
	for _, r := range extra {
		if r.matchesChain(key.kind, key.hook) {
			plugins = append(plugins, r.plugin)
		}
	}
	return plugins
}

// swapChains builds the chains of next, without surplus plugins. It builds all of them before it replaces the first, and then
// retires the plugins that next lacks.
func (c *Chains) swapChains(ctx context.Context, next map[string]*running) error {
	extra, surplus := c.admitPlugins(next)
	chains, lists := map[chainKey]*host.Chain{}, map[chainKey][]*host.Plugin{}
	for _, kind := range c.config.Kinds {
		for _, hook := range []host.Hook{host.Outgoing, host.Incoming} {
			key := chainKey{kind, hook}
			plugins := c.composeChain(key, extra)
			if was, ok := c.present[key]; ok && slices.Equal(was, plugins) {
				continue
			}
			chain, err := host.NewChain(hook, c.config.Guard(kind, c.podSpecs[kind]...), plugins...)
			if err != nil {
				return fmt.Errorf("building the %s chain of %s, %w", hook, kind, err)
			}
			chains[key], lists[key] = chain, plugins
		}
	}
	for key, chain := range chains {
		c.config.Registry.Swap(key.kind, key.hook, chain)
		c.present[key] = lists[key]
	}
	for name, r := range c.extra {
		if next[name] != r {
			c.retirePlugin(ctx, r)
		}
	}
	for name, r := range next {
		r.surplus = surplus[name]
	}
	c.extra = next
	return nil
}

// retirePlugin closes a plugin in the background, after its running calls have ended. Close waits for that.
func (c *Chains) retirePlugin(ctx context.Context, r *running) {
	c.closing.Go(func() { _ = r.plugin.Close(context.WithoutCancel(ctx)) })
}

// Close waits until every removed plugin is closed. Plugins in the chains stay open: the host owns them.
func (c *Chains) Close(ctx context.Context) error {
	done := make(chan struct{})
	go func() { c.closing.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for calls of removed plugins, %w", ctx.Err())
	}
}
