// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// SetLeading sets whether this virtual kubelet reflects the kinds that belong to the provider rather than to a node.
// One of the virtual nodes of a provider should lead. A Manager leads until SetLeading(false).
func (m *Manager) SetLeading(leading bool) {
	changed := m.setLeading(leading)
	m.electing.Store(false)
	m.starting.wake()
	if changed && leading {
		m.enqueueKinds(func(k Kind) bool { return !k.PerNode })
		m.eachHandler(Handler.StartedLeading)
	}
}

// Elect marks the leading virtual kubelet of the provider as unknown until SetLeading is called. Meanwhile this one
// does not lead, and it is not known which copies the objects of this cluster have on the provider.
func (m *Manager) Elect() {
	m.electing.Store(true)
	m.setLeading(false)
}

// setLeading starts or stops the kinds that only the leading virtual kubelet of the provider reflects, and reports
// whether this is a change.
func (m *Manager) setLeading(leading bool) (changed bool) {
	m.changing.Lock()
	defer m.changing.Unlock()
	if m.leading.Swap(leading) == leading {
		return false
	}
	for _, r := range m.all() {
		if r.kind.isOurs(&m.options, false) {
			continue
		}
		for _, t := range m.allExtensions() {
			if leading {
				m.startScope(r, t)
			} else {
				m.stopScope(r, t)
			}
		}
	}
	return true
}

// isOurs reports whether this virtual kubelet watches a kind; see Kind.isOurs. While it stands by, it watches only
// kinds with PerNode.
func (m *Manager) isOurs(kind *Kind) bool {
	if m.standing.Load() {
		return kind.PerNode
	}
	return kind.isOurs(&m.options, m.leading.Load())
}

// RemoteNamespace returns the remote namespace of an offloaded namespace.
func (m *Manager) RemoteNamespace(local string) (string, bool) { return m.mapper.Remote(local) }

// Namespaces returns the offloaded namespaces, each with its remote namespace.
func (m *Manager) Namespaces() map[string]string { return m.mapper.Running() }

// NamespacesKnown returns a channel that is closed when Run has begun and knows the offloaded namespaces. From then on
// kinds can be started, even if running kinds have not read all of their objects.
func (m *Manager) NamespacesKnown() <-chan struct{} { return m.mapped }

// SubscribeNamespaces registers changed, which is called after changes of the offloaded namespaces, and sometimes
// without a change, until cancel is called. No lock is held during a call. changed must not block; calls may overlap.
func (m *Manager) SubscribeNamespaces(changed func()) (cancel func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := &changed
	m.listeners[key] = true
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.listeners, key)
	}
}

func (m *Manager) allListeners() (all []func()) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for listener := range m.listeners {
		all = append(all, *listener)
	}
	return all
}

// OfNode returns the cached objects of this node, for a reflected kind with PerNode. They must not be modified.
func (m *Manager) OfNode(kind string) []*unstructured.Unstructured {
	if r := m.reflector(kind); r != nil && r.ofNode != nil {
		return r.ofNode.All()
	}
	return nil
}

// ObjectOfNode returns an object of the list that OfNode returns, or nil. It must not be modified.
func (m *Manager) ObjectOfNode(kind, namespace, name string) *unstructured.Unstructured {
	if r := m.reflector(kind); r != nil && r.ofNode != nil {
		return r.ofNode.Get(namespace, name)
	}
	return nil
}

// Backlog returns the number of objects that wait for an evaluation, now or later, and the number of evaluations so
// far.
func (m *Manager) Backlog() (waiting int, evaluated uint64) {
	for _, r := range m.all() {
		waiting += r.queue.Len() + r.handler.Waiting()
	}
	return waiting, m.evaluated.Load()
}

// Synced reports whether the offloaded namespaces and the objects to reflect have been read from this cluster. It does
// not wait for the provider.
func (m *Manager) Synced() bool {
	if !m.mapper.Synced() || !m.virtualNode.HasSynced() || !m.nodes.HasSynced() {
		return false
	}
	for _, informer := range m.informers {
		if !informer.HasSynced() {
			return false
		}
	}
	for _, t := range m.allExtensions() {
		if !t.localSynced() {
			return false
		}
	}
	return true
}

// Ready reports whether every kind of every offloaded namespace is being reflected.
func (m *Manager) Ready() bool {
	if !m.Synced() {
		return false
	}
	for _, t := range m.allExtensions() {
		for _, r := range m.all() {
			if s := t.of(r.kind.Name); m.isOurs(&r.kind) && (s == nil || !s.ready.Load()) {
				return false
			}
		}
	}
	return true
}

// Reachable reports whether the last call reached the provider's API server.
func (m *Manager) Reachable() bool { return m.breaker.Allow() == nil }
