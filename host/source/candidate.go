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

// Candidate has the chains with a different set of declared plugins. It shares the modules that are already loaded,
// and keeps all of its modules loaded until Close, so that a Declare with the same plugins need not load any.
type Candidate struct {
	chains   *Chains
	registry *host.Registry
	changed  []host.ChainKey
	version  uint64
	modules  []*loaded
	close    sync.Once
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
	k := &Candidate{chains: c, version: c.version}
	for name, r := range next.running {
		if c.current.running[name] == r {
			// The candidate is an additional user, so that the module stays open even if the plugin is removed from the
			// chains.
			c.pool.share(r.module.key)
		}
		k.modules = append(k.modules, r.module)
	}
	c.setKindsOf(next.roster, c.config.Kinds)
	chains, surplus, err := c.composeChains(next.roster)
	if err != nil {
		k.Close(ctx)
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

// IsCurrent reports whether no chain was swapped since the candidate was built, so that Changed is still valid.
func (k *Candidate) IsCurrent() bool {
	k.chains.mu.Lock()
	defer k.chains.mu.Unlock()
	return k.version == k.chains.version
}

// Close releases the modules. Modules that no chain uses are closed after their running calls.
func (k *Candidate) Close(ctx context.Context) {
	k.close.Do(func() {
		for _, m := range k.modules {
			k.chains.pool.release(ctx, m)
		}
	})
}
