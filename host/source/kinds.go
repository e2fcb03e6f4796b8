// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"slices"

	"github.com/refract-project/refract/host"
)

// AddKind builds the chains of another kind with the current plugins. podSpecs are the paths of pod specs in objects
// of the kind, for the guard (see host.DefaultGuard). If the kind already has chains with these paths, AddKind has no
// effect. After an error, the chains of all kinds are unchanged.
func (c *Chains) AddKind(kind string, podSpecs ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, specsBefore := c.config.Kinds, c.podSpecs[kind]
	known := slices.Contains(before, kind)
	if known && slices.Equal(specsBefore, podSpecs) {
		return nil
	}
	c.podSpecs[kind] = slices.Clone(podSpecs)
	// The kind is known with other pod specs, so its chains must be built again with another guard.
	if known {
		c.forgetChains(kind)
	} else {
		c.setKinds(append(slices.Clone(before), kind))
	}
	if err := c.swapChains(context.Background(), c.current); err != nil {
		c.setKinds(before)
		c.podSpecs[kind] = specsBefore
		return err
	}
	return nil
}

// RemoveKind removes the chains of a kind. From then on, objects of the kind are not mutated. Running calls continue.
func (c *Chains) RemoveKind(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.config.Kinds, kind) {
		return
	}
	c.setKinds(slices.DeleteFunc(slices.Clone(c.config.Kinds), func(k string) bool { return k == kind }))
	delete(c.podSpecs, kind)
	c.config.Registry.SwapAll(map[host.ChainKey]*host.Chain{{Kind: kind, Hook: host.Outgoing}: nil, {Kind: kind, Hook: host.Incoming}: nil})
	c.forgetChains(kind)
	c.version++
}

// forgetChains drops the chains of a kind, including the chains of candidates. They are built again when they are
// needed. c.mu must be held.
func (c *Chains) forgetChains(kind string) {
	for _, hook := range []host.Hook{host.Outgoing, host.Incoming} {
		key := host.ChainKey{Kind: kind, Hook: hook}
		delete(c.present, key)
		for k := range c.candidates {
			delete(k.present, key)
		}
	}
}

// setKinds sets the kinds, and computes the kinds of each plugin again. c.mu must be held.
func (c *Chains) setKinds(kinds []string) {
	c.config.Kinds = kinds
	for _, r := range c.defaults {
		r.kinds = r.matchingKinds(kinds)
	}
	c.setKindsOf(c.current, kinds)
	for k := range c.candidates {
		c.setKindsOf(k.declared, kinds)
	}
}

func (c *Chains) setKindsOf(plugins roster, kinds []string) {
	for _, r := range plugins.running {
		r.kinds = r.matchingKinds(kinds)
	}
	for _, h := range plugins.held {
		h.kinds = h.matchingKinds(kinds)
	}
}

// matchingKinds returns the kinds in the list that the plugin supports.
func (r *running) matchingKinds(kinds []string) (matching []string) {
	for _, kind := range kinds {
		if r.matchesChain(kind, host.Outgoing) || r.matchesChain(kind, host.Incoming) {
			matching = append(matching, kind)
		}
	}
	return matching
}

// isGeneral reports whether a default plugin is for all kinds that have no default plugin of their own: its manifest
// has "*".
func (r *running) isGeneral() bool { return slices.Contains(r.plugin().Manifest().Kinds, "*") }

// defaultsOf returns the default plugins of a kind.
func (c *Chains) defaultsOf(kind string) (own []*running) {
	var general []*running
	for _, r := range c.defaults {
		switch {
		case !slices.Contains(r.kinds, kind):
		case r.isGeneral():
			general = append(general, r)
		default:
			own = append(own, r)
		}
	}
	if len(own) == 0 {
		return general
	}
	return own
}
