// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// extension is an offloaded namespace with its scopes.
type extension struct {
	local, remote string
	ctx           context.Context
	cancel        context.CancelFunc
	contexts      atomic.Pointer[contexts]
	inUse         chan struct{} // closed by used
	usedOnce      sync.Once

	mu     sync.RWMutex
	scopes map[string]*Scope // keyed by kind
}

func newExtension(local, remote string) *extension {
	return &extension{local: local, remote: remote, scopes: map[string]*Scope{}, inUse: make(chan struct{})}
}

// used records that the namespace has an object of its own.
func (t *extension) used() { t.usedOnce.Do(func() { close(t.inUse) }) }

// of returns the scope of a kind, or nil if the kind is not reflected.
func (t *extension) of(kind string) *Scope {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.scopes[kind]
}

// set replaces the scope of a kind and returns the previous one. A nil scope removes it.
func (t *extension) set(kind string, c *Scope) (before *Scope) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before = t.scopes[kind]
	if c == nil {
		delete(t.scopes, kind)
	} else {
		t.scopes[kind] = c
	}
	return before
}

// all returns the scopes of all kinds.
func (t *extension) all() []*Scope {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Collect(maps.Values(t.scopes))
}

// localSynced reports whether the objects of the namespace in this cluster have been read, as far as this cluster
// permits it.
func (t *extension) localSynced() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, s := range t.scopes {
		if s.objects != nil && !s.objects.HasSynced() && !s.deniedHere.lasts() {
			return false
		}
	}
	return true
}

// extension returns the extension of a namespace of this cluster, or nil.
func (m *Manager) extension(local string) *extension {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.extensions[local]
}

func (m *Manager) allExtensions() []*extension {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make([]*extension, 0, len(m.extensions))
	for _, t := range m.extensions {
		all = append(all, t)
	}
	return all
}

// StartNamespace implements namespaces.Handler. It starts the reflection of a namespace and does not wait for the
// provider.
func (m *Manager) StartNamespace(local, remote string) {
	m.changing.Lock()
	defer m.changing.Unlock()
	t := newExtension(local, remote)
	t.ctx, t.cancel = context.WithCancel(m.ctx)
	m.mu.Lock()
	m.extensions[local] = t
	m.metrics.namespaces.Set(float64(len(m.extensions)))
	m.mu.Unlock()
	for _, r := range m.all() {
		if m.isOurs(&r.kind) {
			m.startScope(r, t)
		}
	}
	m.starting.wake()
}

// StopNamespace implements namespaces.Handler. It stops the reflection of a namespace. Nothing is deleted on the
// provider.
func (m *Manager) StopNamespace(local string) {
	m.changing.Lock()
	defer m.changing.Unlock()
	m.mu.Lock()
	t := m.extensions[local]
	delete(m.extensions, local)
	m.metrics.forget(local)
	m.metrics.namespaces.Set(float64(len(m.extensions)))
	m.mu.Unlock()
	if t != nil {
		t.cancel()
	}
}

// NamespacesChanged implements namespaces.Handler. It calls the listeners and the handlers after a change of the set of
// offloaded namespaces.
func (m *Manager) NamespacesChanged() {
	if m.standing.Load() {
		return
	}
	for _, changed := range m.allListeners() {
		changed()
	}
	m.eachHandler(Handler.NamespacesChanged)
	if m.noteOffloaded(m.mapper.Running()) {
		m.enqueueKinds(func(k Kind) bool { return k.Follows.Namespaces })
	}
}

// noteOffloaded records the offloaded namespaces, and reports whether they, or their remote namespaces, have changed.
func (m *Manager) noteOffloaded(now map[string]string) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed = !maps.Equal(m.offloaded, now)
	m.offloaded = now
	return changed
}

func (m *Manager) eachHandler(f func(Handler)) {
	for _, r := range m.all() {
		f(r.handler)
	}
}
