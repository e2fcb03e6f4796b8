// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"slices"

	"github.com/refract-project/refract/host"
)

// AddKind builds the chains of one more kind, of the plugins that are there. podSpecs are the paths at which its objects
// have the spec of a pod, for the guard (see host.DefaultGuard). Nothing happens when it has chains with these. On an error
// the chains of all kinds are as before.
func (c *Chains) AddKind(kind string, podSpecs ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, specsBefore := c.config.Kinds, c.podSpecs[kind]
	known := slices.Contains(before, kind)
	if known && slices.Equal(specsBefore, podSpecs) {
		return nil
	}
	c.podSpecs[kind] = slices.Clone(podSpecs)
	if known { // its guard is another
		delete(c.present, chainKey{kind, host.Outgoing})
		delete(c.present, chainKey{kind, host.Incoming})
	} else {
		c.setKinds(append(slices.Clone(before), kind))
	}
	if err := c.swap(context.Background(), c.extra); err != nil {
		c.setKinds(before)
		c.podSpecs[kind] = specsBefore
		return err
	}
	return nil
}

// RemoveKind drops the chains of a kind: from then on its objects pass unchanged. Calls that began go on.
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

// setKinds finds out again which plugins are for which kinds. Under mu.
func (c *Chains) setKinds(kinds []string) {
	c.config.Kinds = kinds
	for _, r := range c.defaults {
		r.kinds = r.among(kinds)
	}
	for _, r := range c.extra {
		r.kinds = r.among(kinds)
	}
}

// among returns the kinds that the plugin is for.
func (r *running) among(kinds []string) (matching []string) {
	for _, kind := range kinds {
		if r.matches(kind, host.Outgoing) || r.matches(kind, host.Incoming) {
			matching = append(matching, kind)
		}
	}
	return matching
}

// general reports whether it is the default plugin of kinds that have none of their own: its manifest is for all.
func (r *running) general() bool { return slices.Contains(r.plugin.Manifest().Kinds, "*") }

// defaultsOf lists the default plugins of a kind.
func (c *Chains) defaultsOf(kind string) (own []*running) {
	var general []*running
	for _, r := range c.defaults {
		switch {
		case !slices.Contains(r.kinds, kind):
		case r.general():
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
