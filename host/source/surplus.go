// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/internal/printable"
)

// mostPlugins is the maximum number of plugins in a chain: see host.NewChain.
const mostPlugins = 64

// admitPlugins returns the plugins that fit into the chains, in order, and the errors of the surplus plugins by name.
// If the chain of one of its kinds is full, a plugin is surplus: it is in no chain, and stays loaded until it fits.
// If a surplus plugin was declared, the objects of its kinds wait. Plugins that are already in chains take
// precedence, so that a new file cannot displace a plugin on which an operator relies.
func (c *Chains) admitPlugins(next roster) (fit []*running, surplus map[string]error) {
	all := slices.SortedFunc(maps.Values(next.running), comparePlugins)
	if c.overfullReason(all, c.config.Kinds) == "" {
		return all, nil
	}
	surplus = map[string]error{}
	inTurn := slices.Clone(all)
	slices.SortStableFunc(inTurn, func(a, b *running) int { return cmp.Compare(c.turnOf(a), c.turnOf(b)) })
	for _, r := range inTurn {
		tried := append(fit, r)
		if kind := c.overfullReason(tried, r.kinds); kind != "" {
			surplus[r.name] = fmt.Errorf("it does not run: the chain of %s has %d plugins already, which is the most; remove one of them, or merge some", kind, mostPlugins)
			continue
		}
		fit = tried
	}
	slices.SortFunc(fit, comparePlugins)
	return fit, surplus
}

// holdsOfSurplus returns the holds for surplus plugins that were declared without IgnoreFailure, because objects must
// not be reflected without these plugins.
func holdsOfSurplus(next roster, surplus map[string]error) (held []*hold) {
	for _, name := range slices.Sorted(maps.Keys(surplus)) {
		if r := next.running[name]; r.holdsIfSurplus() {
			reason := printable.Line(surplus[name].Error())
			held = append(held, &hold{name: name, origin: r.origin, selector: r.selector, reason: reason, options: r.options, manifest: r.plugin().Manifest()})
		}
	}
	return held
}

// holdsIfSurplus reports whether objects must wait for the plugin while it is surplus, which means that it does not
// fit into the chains.
func (r *running) holdsIfSurplus() bool {
	return r.origin == OriginDeclared && !r.options.IgnoreFailure
}

// turnOf returns the rank of a plugin in the order of admission: 0 if a plugin of its name is already in chains,
// otherwise 1.
func (c *Chains) turnOf(r *running) int {
	if present := c.current.running[r.name]; present != nil && present.surplus == nil {
		return 0
	}
	return 1
}

// overfullReason returns the first kind in the list whose chain would have too many plugins, or "" if there is none.
func (c *Chains) overfullReason(extra []*running, kinds []string) string {
	for _, kind := range kinds {
		for _, hook := range []host.Hook{host.Outgoing, host.Incoming} {
			if len(c.composeChain(host.ChainKey{Kind: kind, Hook: hook}, extra)) > mostPlugins {
				return kind
			}
		}
	}
	return ""
}
