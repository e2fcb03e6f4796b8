// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"slices"

	"github.com/refract-project/refract/host"
)

// AddKind builds the chains of another kind from the current plugins. podSpecs are the paths of pod specs in its
// objects, for the guard (see host.DefaultGuard). If the kind already has chains with these paths, nothing happens.
// After an error the chains of all kinds are unchanged.
func (c *Chains) AddKind(kind string, podSpecs ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, specsBefore := c.config.Kinds, c.podSpecs[kind]
	known := slices.Contains(before, kind)
	if known && slices.Equal(specsBefore, podSpecs) {
		return nil
	}
	c.podSpecs[kind] = slices.Clone(podSpecs)
	// The guard of the kind changes.
	if known {
		delete(c.present, chainKey{kind, host.Outgoing})
		delete(c.present, chainKey{kind, host.Incoming})
	} else {
		c.setKinds(append(slices.Clone(before), kind))
	}
	if err := c.swapChains(context.Background(), c.extra); err != nil {
		c.setKinds(before)
		c.podSpecs[kind] = specsBefore
		return err
	}
	return nil
}

// RemoveKind removes the chains of a kind: from then on its objects pass unchanged. Calls in progress continue.
func (c *Chains) RemoveKind(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.config.Kinds, kind) {
		return
	}
	c.setKinds(slices.DeleteFunc(slices.Clone(c.config.Kinds), func(k string) bool { return k == kind }))
	delete(c.podSpecs, kind)
	for _, hook := range []host.Hook{host.Outgoing, host.Incoming} {
		c.config.Registry.Swap(kind, hook, nil)
		delete(c.present, chainKey{kind, hook})
	}
}

// setKinds sets the kinds and recomputes the kinds of each plugin. The caller holds mu.
func (c *Chains) setKinds(kinds []string) {
	c.config.Kinds = kinds
	for _, r := range c.defaults {
		r.kinds = r.matchingKinds(kinds)
	}
	for _, r := range c.extra {
		r.kinds = r.matchingKinds(kinds)
	}
}

// matchingKinds returns the kinds that the plugin supports.
func (r *running) matchingKinds(kinds []string) (matching []string) {
	for _, kind := range kinds {
		if r.matchesChain(kind, host.Outgoing) || r.matchesChain(kind, host.Incoming) {
			matching = append(matching, kind)
		}
	}
	return matching
}

// isGeneral reports whether the plugin is the default plugin of kinds without one of their own: its manifest has "*".
func (r *running) isGeneral() bool { return slices.Contains(r.plugin.Manifest().Kinds, "*") }

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
