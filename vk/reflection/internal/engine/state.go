// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

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

// NamespacesKnown returns a channel that is closed when Run has begun and the offloaded namespaces have been read.
// From then on, the reflection of further kinds can be started, even if kinds that are already reflected have not
// read all of their objects.
func (m *Manager) NamespacesKnown() <-chan struct{} { return m.mapped }

// SubscribeNamespaces registers changed, which is called after changes in the set of offloaded namespaces, and
// sometimes without a change, until cancel is called. No lock is held during a call. changed must not block; calls may
// overlap.
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

// allListeners returns the functions that SubscribeNamespaces registered.
func (m *Manager) allListeners() (all []func()) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for listener := range m.listeners {
		all = append(all, *listener)
	}
	return all
}

// OfNode returns the cached objects of this node, for a reflected kind with PerNode. The caller must not modify them.
func (m *Manager) OfNode(kind string) []*unstructured.Unstructured {
	if r := m.reflector(kind); r != nil && r.ofNode != nil {
		return r.ofNode.All()
	}
	return nil
}

// ObjectOfNode returns the object with the given name from the list that OfNode returns, or nil. The caller must not
// modify it.
func (m *Manager) ObjectOfNode(kind, namespace, name string) *unstructured.Unstructured {
	if r := m.reflector(kind); r != nil && r.ofNode != nil {
		return r.ofNode.Get(namespace, name)
	}
	return nil
}

// Backlog returns the number of objects that wait for an evaluation, including objects that are scheduled for later,
// and the number of evaluations so far.
func (m *Manager) Backlog() (waiting int, evaluated uint64) {
	for _, r := range m.all() {
		waiting += r.queue.Len() + r.handler.Waiting()
	}
	return waiting, m.evaluated.Load()
}

// Synced reports whether the offloaded namespaces and the objects to reflect have been read from this cluster. It does
// not wait for the provider.
func (m *Manager) Synced() bool {
	if !m.mapper.Synced() || !m.settings.VirtualNode.HasSynced() || !m.settings.Nodes.HasSynced() {
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

// Reachable reports whether the last request to the provider's API server has reached it.
func (m *Manager) Reachable() bool { return m.clients.Reachable() == nil }

// all returns the reflectors of all kinds.
func (m *Manager) all() []*reflector {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.reflectors
}

// reflector returns the reflector of a kind, or nil.
func (m *Manager) reflector(kind string) *reflector {
	for _, r := range m.all() {
		if r.kind.Name == kind {
			return r
		}
	}
	return nil
}

// replace replaces the list of reflectors with an edited copy, so that goroutines that still read the previous list are
// not affected.
func (m *Manager) replace(edit func([]*reflector) []*reflector) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reflectors = edit(slices.Clone(m.reflectors))
}

// depths returns the length of the queue of each kind.
func (m *Manager) depths() map[string]int {
	depths := map[string]int{}
	for _, r := range m.all() {
		depths[r.kind.Name] = r.queue.Len()
	}
	return depths
}

// quarantined returns, for each kind, the number of copies and statuses that are not written for some time, because
// another client has repeatedly reverted them.
func (m *Manager) quarantined() map[string]int {
	counts := map[string]int{}
	for _, r := range m.all() {
		counts[r.kind.Name] = r.objects.Quarantined()
		for _, t := range m.allExtensions() {
			if s := t.of(r.kind.Name); s != nil {
				counts[r.kind.Name] += s.Quarantined()
			}
		}
	}
	return counts
}

// extension returns the extension of a namespace of this cluster, or nil.
func (m *Manager) extension(local string) *extension {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.extensions[local]
}

// allExtensions returns all offloaded namespaces.
func (m *Manager) allExtensions() []*extension {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make([]*extension, 0, len(m.extensions))
	for _, t := range m.extensions {
		all = append(all, t)
	}
	return all
}

// eachHandler calls f for the handler of each kind.
func (m *Manager) eachHandler(f func(Handler)) {
	for _, r := range m.all() {
		f(r.handler)
	}
}

// eachScope calls f for each kind in each offloaded namespace.
func (m *Manager) eachScope(f func(*Scope)) {
	for _, t := range m.allExtensions() {
		for _, s := range t.all() {
			f(s)
		}
	}
}

// leads reports whether this Manager is the leader: Lead was called, or Options.StandBy is not set.
func (m *Manager) leads() bool {
	select {
	case <-m.lead:
		return true
	default:
		return false
	}
}

// remoteNamespaces returns the remote namespace of each namespace that is offloaded.
func (m *Manager) remoteNamespaces() map[string]any {
	offloaded := map[string]any{}
	for local, remote := range m.mapper.Running() {
		offloaded[local] = remote
	}
	return offloaded
}

// meant returns the reflector for a kind on the provider: the kind of its copies, or of the objects that the provider
// creates from them. It returns nil if there is no such reflector.
func (m *Manager) meant(kind schema.GroupKind) *reflector {
	for _, r := range m.all() {
		if r.kind.Means(kind) {
			return r
		}
	}
	return nil
}

// sharedCaches returns the caches of other objects that the desired state of a kind depends on. If an object were
// evaluated before these caches are filled, its copy would be written with other content than before a restart.
func (m *Manager) sharedCaches(kind Kind) []cache.DoneChecker {
	needs := []cache.DoneChecker{m.settings.VirtualNode}
	if kind.Follows.Network || kind.Follows.Nodes {
		needs = append(needs, m.settings.Nodes)
	}
	if kind.Follows.Namespaces {
		needs = append(needs, m.mapper.SyncedChecker())
	}
	if m.settings.IPs != nil && (kind.Follows.Network || kind.Follows.APIServer) {
		needs = append(needs, m.settings.IPs)
	}
	return needs
}
