// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strings"

	"github.com/refract-project/refract/vk/reflection/internal/queue"
)

// Lags returns the referenced objects whose copies on the provider are not up to date, sorted. It enqueues the object
// with the key when this list changes. An object of a kind that is not tracked is returned only if the kind has not
// been listed. Kinds that are not reflected are ignored, as are kinds that an API server denies or that another virtual
// kubelet reflects.
func (s *Scope) Lags(references []queue.Reference, key queue.Key) (lags []queue.Lag) {
	m, who := s.r.m, s.r.queue.Waiter(key)
	if len(references) > 0 && m.electing.Load() {
		if m.starting.Add(who); m.electing.Load() {
			return []queue.Lag{{}}
		}
	}
	for _, reference := range references {
		r := m.reflector(reference.Kind)
		if r == nil || !m.isOurs(&r.kind) || r.kind.Tracked && !r.kind.PerNode && !m.leading.Load() {
			continue
		}
		own := s.namespace.of(reference.Kind)
		if own == nil {
			m.starting.Add(who)
			own = s.namespace.of(reference.Kind)
		}
		switch {
		case own == nil || !own.isListed(who):
			lags = append(lags, queue.Lag{Kind: reference.Kind})
		case reference.Name == "":
			lags = own.steps.Lags(reference.Kind, "", who, lags)
		case r.copies.RemoteName(r.copies.LocalName(reference.Name)) == reference.Name:
			lags = own.steps.Lags(reference.Kind, r.copies.LocalName(reference.Name), who, lags)
		}
	}
	if len(lags) < 2 {
		return lags
	}
	slices.SortFunc(lags, func(a, b queue.Lag) int { return strings.Compare(a.Kind+"/"+a.Name, b.Kind+"/"+b.Name) })
	return slices.CompactFunc(lags, func(a, b queue.Lag) bool { return a.Kind == b.Kind && a.Name == b.Name })
}

// isListed reports whether the objects of a scope were listed and enqueued, or cannot be listed. If they were not
// listed yet, isListed enqueues the waiter as soon as they are.
func (s *Scope) isListed(who queue.Waiter) bool {
	known := func() bool { return s.listed.Load() || s.deniedHere.lasts() || s.deniedThere.lasts() }
	if known() {
		return true
	}
	s.steps.Await(who)
	return known()
}
