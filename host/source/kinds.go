// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"slices"

	"github.com/refract-project/refract/host"
)

// AddKind makes the chains of one more kind, of the plugins that are there. Nothing happens when it has some. On an error
// there are none, and the chains of other kinds are as before.
func (c *Chains) AddKind(kind string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.config.Kinds
	if slices.Contains(before, kind) {
		return nil
	}
	c.setKinds(append(slices.Clone(before), kind))
	if err := c.swap(context.Background(), c.extra); err != nil {
		c.setKinds(before)
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
	for _, hook := range []host.Hook{host.Outgoing, host.Incoming} {
		c.config.Registry.Swap(kind, hook, nil)
		delete(c.present, chainKey{kind, hook})
	}
}

// setKinds finds out anew which plugins are for which kinds. Under mu.
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

// general tells the default plugin of kinds that have none of their own: its manifest is for all.
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
