// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// StartKind starts the reflection of a kind in every offloaded namespace. It replaces a kind of the same name that
// StartKind started; the kinds that were passed to New cannot be replaced. It must not be called before Run.
func (m *Manager) StartKind(kind Kind) error {
	select {
	case <-m.begun:
	default:
		return errors.New("starting a kind: the Manager does not run yet")
	}
	for _, builtin := range m.options.Kinds {
		if builtin.Name == kind.Name {
			return fmt.Errorf("starting kind %s: it is reflected already", kind.Name)
		}
	}
	if err := kind.validate(); err != nil || kind.PerNode {
		return errors.Join(fmt.Errorf("starting kind %s: it cannot be reflected", kind.Name), err)
	}
	r, err := m.newReflector(kind)
	if err != nil {
		return err
	}
	m.kinds.Lock()
	defer m.kinds.Unlock()
	m.stopKind(kind.Name)
	m.changing.Lock()
	defer m.changing.Unlock()
	if err := m.ctx.Err(); err != nil {
		return fmt.Errorf("starting kind %s: the Manager has ended, %w", kind.Name, err)
	}
	m.replace(func(all []*reflector) []*reflector { return append(all, r) })
	r.run(m.ctx)
	for _, t := range m.allExtensions() {
		if m.isOurs(&r.kind) {
			m.startScope(r, t)
		}
	}
	m.starting.Wake()
	return nil
}

// StopKind stops the reflection of a kind that StartKind started, and returns when all of its goroutines have ended.
// Its objects on the provider are not deleted.
func (m *Manager) StopKind(name string) {
	m.kinds.Lock()
	defer m.kinds.Unlock()
	m.stopKind(name)
}

// stopKind removes a kind and waits until its goroutines have ended. It waits without the lock, so that namespaces
// can start and stop during the wait, because a watch of an API server that does not respond takes time to end. The
// caller holds m.kinds.
func (m *Manager) stopKind(name string) {
	r := m.reflector(name)
	if r == nil {
		return
	}
	for _, c := range m.detach(r) {
		c.wg.Wait()
	}
	r.wg.Wait()
	m.metrics.ForgetKind(r.kind.Name, r.kind.Liqo())
}

// detach removes a kind from the Manager and cancels its scopes and workers.
func (m *Manager) detach(r *reflector) (ending []*Scope) {
	m.changing.Lock()
	defer m.changing.Unlock()
	m.replace(func(all []*reflector) []*reflector {
		return slices.DeleteFunc(all, func(other *reflector) bool { return other == r })
	})
	r.cancel()
	for _, t := range m.allExtensions() {
		if s := m.stopScope(r, t); s != nil {
			ending = append(ending, s)
		}
	}
	return ending
}

// SetLeading sets whether this virtual kubelet reflects the kinds that belong to the provider rather than to a node.
// One of the virtual nodes of a provider should lead. A Manager leads until SetLeading(false) or Elect is called.
func (m *Manager) SetLeading(leading bool) {
	changed := m.setLeading(leading)
	m.electing.Store(false)
	m.starting.Wake()
	if changed && leading {
		m.enqueueKinds(func(k Kind) bool { return !k.PerNode })
		m.eachHandler(Handler.StartedLeading)
	}
}

// Elect marks the leading virtual kubelet of the provider as unknown until SetLeading is called. Until then, this
// virtual kubelet does not lead, and it is not known which copies the objects of this cluster have on the provider.
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

// StartNamespace implements namespaces.Handler. It starts the reflection of a namespace and does not wait for the
// provider.
func (m *Manager) StartNamespace(local, remote string) {
	m.changing.Lock()
	defer m.changing.Unlock()
	t := newExtension(local, remote)
	t.ctx, t.cancel = context.WithCancel(m.ctx)
	m.mu.Lock()
	m.extensions[local] = t
	m.metrics.Namespaces.Set(float64(len(m.extensions)))
	m.mu.Unlock()
	for _, r := range m.all() {
		if m.isOurs(&r.kind) {
			m.startScope(r, t)
		}
	}
	m.starting.Wake()
}

// StopNamespace implements namespaces.Handler. It stops the reflection of a namespace. Nothing is deleted on the
// provider.
func (m *Manager) StopNamespace(local string) {
	m.changing.Lock()
	defer m.changing.Unlock()
	m.mu.Lock()
	t := m.extensions[local]
	delete(m.extensions, local)
	m.metrics.Forget(local)
	m.metrics.Namespaces.Set(float64(len(m.extensions)))
	m.mu.Unlock()
	if t != nil {
		t.cancel()
	}
}

// NamespacesChanged implements namespaces.Handler. It calls the listeners and the handlers after a change in the set of
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
