// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"errors"
	"strings"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/internal/printable"
)

// hold takes the place of a plugin that cannot run. Objects that the plugin should mutate wait until it can run.
type hold struct {
	name     string
	origin   Origin
	selector host.Selector
	reason   string
	// all means that the plugin may be for any kind, because its options could not be read. If all is false, the
	// plugin's kinds are the kinds that its options list or, if they list none, the kinds of its manifest. The manifest
	// is nil if it is not known.
	all      bool
	options  Options
	manifest *host.Manifest

	kinds []string // kinds whose objects wait
}

// newHold returns the hold for a plugin that cannot run because of err.
func newHold(w *wanted, err error) *hold {
	h := &hold{name: w.Name, origin: w.origin, selector: w.selector, reason: printable.Line(err.Error()), all: !w.hasOptions, options: w.Options, manifest: w.manifest}
	var refused *host.LoadError
	if errors.As(err, &refused) {
		h.manifest = refused.Manifest
	}
	return h
}

// matchesChain reports whether the plugin would be in the chain. If the kinds of the plugin are not known,
// matchesChain returns true.
func (h *hold) matchesChain(kind string, hook host.Hook) bool {
	switch {
	case h.all:
		return true
	case h.manifest != nil:
		return h.options.Matches(h.manifest, kind, hook)
	case h.options.Kinds == nil:
		return true
	}
	name, group, _ := strings.Cut(kind, ".")
	return host.MatchesKind(h.options.Kinds, name, group)
}

// matchingKinds returns the kinds in the list whose objects wait for the plugin.
func (h *hold) matchingKinds(kinds []string) (matching []string) {
	for _, kind := range kinds {
		if h.matchesChain(kind, host.Outgoing) || h.matchesChain(kind, host.Incoming) {
			matching = append(matching, kind)
		}
	}
	return matching
}

// entry returns the entry of the hold in the chains of a kind.
func (h *hold) entry(kind string) host.Entry {
	return host.Entry{Selector: h.selector, Held: &host.HeldError{Kind: kind, Plugin: h.name, Reason: h.reason}}
}
