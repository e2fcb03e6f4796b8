// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/refract-project/refract/host"
)

// Candidate contains the chains with a different set of declared plugins. It shares the modules that are already
// loaded, and keeps all of its modules loaded until Close, so that a Declare with the same plugins need not load any.
//
// A change of the plugin directory, or of the kinds, changes the chains of a Candidate just before the chains of the
// registry. Otherwise the effects of such a change would be attributed to the declared plugins, because a rehearsal and
// a probation compare the Candidate's results with those of the registry.
type Candidate struct {
	chains   *Chains
	registry *host.Registry
	changed  []host.ChainKey
	close    sync.Once

	// The following fields are guarded by chains.mu.
	version  uint64
	declared roster
	present  map[host.ChainKey]composed
	modules  []*loaded
}

// NewCandidate builds the chains that Declare would build for the given plugins, without swapping any. It returns the
// same statuses as Declare. If the chains cannot be built, it returns an error and no Candidate.
func (c *Chains) NewCandidate(ctx context.Context, plugins []Declared) (*Candidate, []Status, error) {
	c.applying.Lock()
	defer c.applying.Unlock()
	list := wantedOf(plugins)
	next := c.accept(ctx, OriginDeclared, list)
	c.mu.Lock()
	defer c.mu.Unlock()
	k := &Candidate{chains: c, version: c.version, declared: next.withOrigin(OriginDeclared)}
	for name, r := range next.running {
		if c.current.running[name] == r {
			// The candidate is an additional user, so that the module stays open even if the plugin is removed from the
			// chains.
			c.pool.share(r.module.key)
		}
		k.modules = append(k.modules, r.module)
	}
	c.setKindsOf(next.roster, c.config.Kinds)
	chains, surplus, err := c.composeChains(next.roster, c.present)
	if err != nil {
		k.release(ctx)
		return nil, nil, err
	}
	for name, r := range next.running {
		if c.current.running[name] != r {
			r.surplus = surplus[name]
		}
	}
	k.registry = host.NewRegistry(func(kind string, _ host.Hook) host.Guard { return c.config.Guard(kind) })
	all := map[host.ChainKey]*host.Chain{}
	for key, chain := range chains {
		all[key] = chain.chain
		if c.present[key].chain != chain.chain {
			k.changed = append(k.changed, key)
		}
	}
	k.registry.SwapAll(all)
	k.present = chains
	c.candidates[k] = struct{}{}
	slices.SortFunc(k.changed, func(a, b host.ChainKey) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Hook, b.Hook))
	})
	return k, statusesOf(list, next), nil
}

// Registry returns a registry with the candidate's chains for all kinds.
func (k *Candidate) Registry() *host.Registry { return k.registry }

// Changed returns the keys of the chains that differ from the chains at the time when the candidate was built, in
// order.
func (k *Candidate) Changed() []host.ChainKey { return k.changed }

// follow gives the candidate the plugins of the directory in next, which becomes the current roster. After an error, the
// chains stay as they are, and the candidate is not current any more. chains.mu must be held.
func (k *Candidate) follow(ctx context.Context, next roster) {
	c := k.chains
	own := next.withOrigin(OriginFolder)
	var modules []*loaded
	for _, r := range own.running {
		modules = append(modules, r.module)
	}
	for name, r := range k.declared.running {
		modules = append(modules, r.module)
		if own.running[name] == nil { // a file that has taken the name of a plugin takes precedence, as in accept
			own.running[name] = r
		}
	}
	own.held = append(own.held, k.declared.held...)
	chains, _, err := c.composeChains(own, k.present)
	if err != nil {
		c.config.Logger.Warn("The chains of another revision of a plugin do not follow the plugin directory", "err", err)
		return
	}
	changed := map[host.ChainKey]*host.Chain{}
	for key, chain := range chains {
		if k.present[key].chain != chain.chain {
			changed[key] = chain.chain
		}
	}
	k.registry.SwapAll(changed)
	for _, m := range modules {
		c.pool.share(m.key)
	}
	k.release(ctx)
	k.modules, k.present = modules, chains
	if k.version == c.version {
		k.version++ // swapChains increments c.version as well
	}
}

// IsCurrent reports whether the declared plugins are the same as when the candidate was built, so that Changed is still
// valid.
func (k *Candidate) IsCurrent() bool {
	k.chains.mu.Lock()
	defer k.chains.mu.Unlock()
	return k.version == k.chains.version
}

// Close releases the modules. Modules that no chain uses are closed after their running calls.
func (k *Candidate) Close(ctx context.Context) {
	k.close.Do(func() {
		k.chains.mu.Lock()
		defer k.chains.mu.Unlock()
		delete(k.chains.candidates, k)
		k.release(ctx)
	})
}

// release releases the modules. chains.mu must be held.
func (k *Candidate) release(ctx context.Context) {
	for _, m := range k.modules {
		k.chains.pool.release(ctx, m)
	}
}
