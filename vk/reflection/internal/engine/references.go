// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

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

// Exclusion describes an object of this cluster that deliberately has no copy on the provider.
type Exclusion struct {
	Kind       string                      // kind as in the reference
	Object     *unstructured.Unstructured  // cached object, see Cache.Objects
	Resource   schema.GroupVersionResource // resource of copies
	RemoteName string                      // name that the copy would have
	Reason     string                      // why the object is not reflected
	ByPolicy   bool                        // the policy of the kind, with the object's annotations, excludes the object
}

// Exclusions returns the referenced objects that deliberately have no copy: their annotations, the policy of their kind,
// or a plugin exclude them from reflection. It returns no objects of kinds that another virtual kubelet reflects.
func (s *Scope) Exclusions(references []queue.Reference) (exclusions []Exclusion) {
	for _, reference := range references {
		r := s.r.m.reflector(reference.Kind)
		own := s.namespace.of(reference.Kind)
		if r == nil || own == nil || reference.Name == "" {
			continue
		}
		name := r.copies.LocalName(reference.Name)
		reason := own.steps.Exclusion(name)
		if reason == "" || r.copies.RemoteName(name) != reference.Name {
			continue
		}
		object := own.Object(own.Key(name))
		if object == nil {
			continue
		}
		exclusions = append(exclusions, Exclusion{Kind: reference.Kind, Object: object, Resource: r.copies.Resource, RemoteName: reference.Name,
			Reason: reason, ByPolicy: !own.MayCross(object)})
	}
	return exclusions
}
