// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// enqueueKinds enqueues every object of the matching kinds.
func (m *Manager) enqueueKinds(which func(Kind) bool) {
	for _, r := range m.all() {
		if which(r.kind) {
			r.enqueueAll()
		}
	}
}

// VirtualNodeChanged implements settings.Listener. It enqueues every object, because plugins of all kinds see the
// VirtualNode.
func (m *Manager) VirtualNodeChanged() { m.enqueueKinds(func(Kind) bool { return true }) }

// NodesChanged implements settings.Listener. It enqueues the objects of kinds that follow the virtual nodes.
func (m *Manager) NodesChanged() {
	m.enqueueKinds(func(k Kind) bool { return k.Follows.Network || k.Follows.Nodes })
}

// NodeRegistered implements settings.Listener. The objects of the node are reflected from now on.
func (m *Manager) NodeRegistered() {
	m.enqueueKinds(func(k Kind) bool { return k.PerNode })
	if !m.standing.Load() {
		m.eachHandler(Handler.NamespacesChanged)
	}
}

// APIServerLocated implements settings.Listener. It enqueues the objects of kinds that follow the address of the API
// server.
func (m *Manager) APIServerLocated() {
	m.enqueueKinds(func(k Kind) bool { return k.Follows.APIServer })
}

// ipDebounce collects the changed IP objects of a rollout, because each one may affect every object of its namespace
// that has addresses. With a longer delay, new endpoints would stay unmapped for longer.
const ipDebounce = 300 * time.Millisecond

// AddressesChanged implements settings.Listener. It enqueues the objects of the namespace whose kinds follow the network.
func (m *Manager) AddressesChanged(namespace string) {
	t := m.extension(namespace)
	if t == nil {
		return
	}
	for _, r := range m.all() {
		if s := t.of(r.kind.Name); r.kind.Follows.Network && s != nil && s.ready.Load() {
			for _, object := range s.objects.In(t.local) {
				r.queue.AddAfter(raw.Key(object), ipDebounce)
			}
		}
	}
}

// enqueueAll enqueues every object of the kind in every ready namespace.
func (r *reflector) enqueueAll() {
	for _, t := range r.m.allExtensions() {
		if s := t.of(r.kind.Name); s != nil && !r.kind.Reverse && s.ready.Load() {
			s.enqueueAll()
		}
	}
}

// reevaluateAll enqueues every object of the kind in every ready namespace. Changes by users overtake these objects.
func (r *reflector) reevaluateAll() {
	for _, t := range r.m.allExtensions() {
		if s := t.of(r.kind.Name); s != nil && !r.kind.Reverse && s.ready.Load() {
			s.enqueueEach(r.queue.Reevaluate)
		}
	}
}

// Reevaluate enqueues every object of the kinds. Changes by users overtake these objects. Only changed results are
// written. Unknown kinds are ignored.
func (m *Manager) Reevaluate(kinds []string) {
	for _, kind := range kinds {
		if r := m.reflector(kind); r != nil {
			r.reevaluateAll()
		}
	}
}

// EnqueueNamespace enqueues every object of an offloaded namespace after the labels of the namespace have changed,
// because plugins may select objects by these labels. Changes by users overtake these objects. Only changed results
// are written.
func (m *Manager) EnqueueNamespace(local string) {
	// The counter is increased before the objects are enqueued, and even if the namespace is not offloaded now, because
	// it may be offloaded again later.
	m.relabels.Add(1)
	t := m.extension(local)
	if t == nil {
		return
	}
	for _, s := range t.all() {
		if !s.r.kind.Reverse && s.ready.Load() {
			s.enqueueEach(s.r.queue.Reevaluate)
		}
	}
}
