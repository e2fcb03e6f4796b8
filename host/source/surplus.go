// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/refract-project/refract/host"
)

// mostPlugins is the maximum number of plugins of a chain: see host.NewChain.
const mostPlugins = 64

// admitPlugins returns the plugins that fit into the chains, in order, and the errors of the others by name. A plugin that
// does not fit into the chain of one of its kinds is in no chain, and stays loaded until it fits. Plugins already in
// chains take precedence, so that a new file cannot displace a plugin on which an operator relies.
func (c *Chains) admitPlugins(next map[string]*running) (fit []*running, surplus map[string]error) {
	all := slices.SortedFunc(maps.Values(next), comparePlugins)
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

// turnOf returns the order of admission: 0 if a plugin of that name is in chains, 1 otherwise.
func (c *Chains) turnOf(r *running) int {
	if present := c.extra[r.name]; present != nil && present.surplus == nil {
		return 0
	}
	return 1
}

// overfullReason returns the first of the kinds with a chain that would have too many plugins, or "" if there is none.
func (c *Chains) overfullReason(extra []*running, kinds []string) string {
	for _, kind := range kinds {
		for _, hook := range []host.Hook{host.Outgoing, host.Incoming} {
			if len(c.composeChain(chainKey{kind, hook}, extra)) > mostPlugins {
				return kind
			}
		}
	}
	return ""
}
