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

// composed is a chain with the entries from which it was built.
type composed struct {
	entries []host.Entry
	chain   *host.Chain
}

func comparePlugins(a, b *running) int {
	return cmp.Or(cmp.Compare(a.options.Priority, b.options.Priority), strings.Compare(a.name, b.name))
}

// composeChain returns the entries of a chain in order: plugins with a negative priority, default plugins, and all
// other plugins.
func (c *Chains) composeChain(key host.ChainKey, extra []*running) (entries []host.Entry) {
	first := slices.IndexFunc(extra, func(r *running) bool { return r.options.Priority >= 0 })
	if first < 0 {
		first = len(extra)
	}
	entries = appendMatching(entries, key, extra[:first])
	for _, r := range c.defaultsOf(key.Kind) {
		if !r.matchesChain(key.Kind, key.Hook) {
			continue
		}
		if selector, runs := selectorOfDefault(r, key.Kind, extra); runs {
			entries = append(entries, host.Entry{Plugin: r.plugin(), Selector: selector})
		}
	}
	return appendMatching(entries, key, extra[first:])
}

func appendMatching(entries []host.Entry, key host.ChainKey, plugins []*running) []host.Entry {
	for _, r := range plugins {
		if r.matchesChain(key.Kind, key.Hook) {
			entries = append(entries, host.Entry{Plugin: r.plugin(), Selector: r.selector})
		}
	}
	return entries
}

// selectorOfDefault returns the selector of a default plugin that other plugins replace: it selects the objects that
// are selected by none of the replacements. The result is false if there are no such objects.
func selectorOfDefault(d *running, kind string, extra []*running) (host.Selector, bool) {
	var instead []host.Selector
	for _, r := range extra {
		if r.options.Replaces != d.name || !slices.Contains(r.kinds, kind) {
			continue
		}
		if r.selector == nil {
			return nil, false
		}
		instead = append(instead, r.selector)
	}
	return host.NoneOf(instead...), true
}

// holdsOf returns the entries of the holds in a chain.
func holdsOf(key host.ChainKey, held []*hold) (entries []host.Entry) {
	for _, h := range held {
		if h.matchesChain(key.Kind, key.Hook) {
			entries = append(entries, h.entry(key.Kind))
		}
	}
	return entries
}

// composeChains builds the chains of all kinds without surplus plugins. A chain that would not differ from the one in
// present is not built again. composeChains also returns the errors of the surplus plugins by name.
func (c *Chains) composeChains(next roster, present map[host.ChainKey]composed) (
	chains map[host.ChainKey]composed, surplus map[string]error, err error) {
	extra, surplus := c.admitPlugins(next)
	held := slices.Concat(next.held, holdsOfSurplus(next, surplus))
	chains = map[host.ChainKey]composed{}
	for _, kind := range c.config.Kinds {
		for _, hook := range []host.Hook{host.Outgoing, host.Incoming} {
			key := host.ChainKey{Kind: kind, Hook: hook}
			entries := slices.Concat(holdsOf(key, held), c.composeChain(key, extra))
			if was, ok := present[key]; ok && slices.EqualFunc(was.entries, entries, sameEntry) {
				chains[key] = was
				continue
			}
			chain, err := host.NewSelectiveChain(hook, c.config.Guard(kind, c.podSpecs[kind]...), entries...)
			if err != nil {
				return nil, nil, fmt.Errorf("building the %s chain of %s, %w", hook, kind, err)
			}
			chains[key] = composed{entries, chain}
		}
	}
	return chains, surplus, nil
}

func sameEntry(a, b host.Entry) bool {
	return a.Plugin == b.Plugin && (a.Held == nil) == (b.Held == nil) && (a.Held == nil || *a.Held == *b.Held) && sameSelector(a.Selector, b.Selector)
}

// swapChains puts the chains of next into the registry, all at once, and then releases the plugins that are not in
// next.
func (c *Chains) swapChains(ctx context.Context, next roster) error {
	chains, surplus, err := c.composeChains(next, c.present)
	if err != nil {
		return err
	}
	changed := map[host.ChainKey]*host.Chain{}
	for key, chain := range chains {
		if c.present[key].chain != chain.chain {
			changed[key] = chain.chain
		}
	}
	if len(changed) > 0 {
		// Candidates follow first. Otherwise an object that the new chains skip, but the chains of a candidate do not,
		// would count as skipped because of the declared plugins.
		if c.current.hasDeclaredOf(next) {
			for k := range c.candidates {
				k.follow(ctx, next)
			}
		}
		c.config.Registry.SwapAll(changed)
		c.version++
	}
	for name, r := range c.current.running {
		if next.running[name] != r {
			c.pool.release(ctx, r.module)
		}
	}
	for name, r := range next.running {
		r.surplus = surplus[name]
	}
	c.current, c.present = next, chains
	return nil
}

// Close waits until all removed plugins are closed. Plugins in the chains stay open, because the host owns them.
func (c *Chains) Close(ctx context.Context) error {
	done := make(chan struct{})
	go func() { c.pool.closing.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for calls of removed plugins, %w", ctx.Err())
	}
}
