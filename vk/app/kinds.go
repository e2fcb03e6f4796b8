// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection"
)

// kindNames translates between the names by which the reflection calls its
// kinds ("EndpointSlice") and those by which plugins do, which have the API group
// unless it is the core one ("EndpointSlice.discovery.k8s.io").
type kindNames map[string]string

func newKindNames() kindNames {
	names := kindNames{}
	for _, kind := range reflection.DefaultKinds() {
		if kind.NoChain {
			continue
		}
		names[kind.Name] = kind.Name
		if group := kind.Source.Group; group != "" && !strings.Contains(kind.Name, ".") {
			names[kind.Name] = kind.Name + "." + group
		}
	}
	return names
}

// keys of the plugin chains.
func (n kindNames) keys() []string { return slices.Sorted(maps.Values(n)) }

// key of the chains of a kind. Kinds that come at run time have one name for both.
func (n kindNames) key(kind string) string {
	if key, ok := n[kind]; ok {
		return key
	}
	return kind
}

// namedChains is a registry as the reflection sees it.
type namedChains struct {
	*host.Registry
	names kindNames
}

// Run implements reflection.Chains.
func (c namedChains) Run(ctx context.Context, kind string, hook host.Hook, doc *document.Document, env *host.Env) (*host.Outcome, error) {
	return c.Registry.Run(ctx, c.names.key(kind), hook, doc, env)
}

// Subscribe implements reflection.Chains.
func (c namedChains) Subscribe(f func(kind string, hook host.Hook, generation uint64)) (cancel func()) {
	return c.Registry.Subscribe(func(key string, hook host.Hook, generation uint64) {
		known := false
		for kind, name := range c.names {
			if name == key {
				known = true
				f(kind, hook, generation)
			}
		}
		if !known {
			f(key, hook, generation)
		}
	})
}
