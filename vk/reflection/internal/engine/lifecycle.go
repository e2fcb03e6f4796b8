// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"slices"
)

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

// depths returns the length of each queue.
func (m *Manager) depths() map[string]int {
	depths := map[string]int{}
	for _, r := range m.all() {
		depths[r.kind.Name] = r.queue.Len()
	}
	return depths
}

// quarantined returns the number of copies and statuses of each kind that are left alone because of a fight.
func (m *Manager) quarantined() map[string]int {
	counts := map[string]int{}
	for _, r := range m.all() {
		counts[r.kind.Name] = r.shown.Quarantined()
		for _, t := range m.allExtensions() {
			if s := t.of(r.kind.Name); s != nil {
				counts[r.kind.Name] += s.fights.Quarantined()
			}
		}
	}
	return counts
}

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
	m.starting.wake()
	return nil
}

// StopKind stops the reflection of a kind that StartKind started, and returns when all of its goroutines have ended.
// Its objects on the provider are not deleted.
func (m *Manager) StopKind(name string) {
	m.kinds.Lock()
	defer m.kinds.Unlock()
	m.stopKind(name)
}

// stopKind waits without the lock, so that namespaces can start and stop meanwhile: a watch of an API server that does
// not respond takes time to end. The caller holds m.kinds.
func (m *Manager) stopKind(name string) {
	r := m.reflector(name)
	if r == nil {
		return
	}
	for _, c := range m.detach(r) {
		c.wg.Wait()
	}
	r.wg.Wait()
	m.metrics.forgetKind(r)
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

func (m *Manager) replace(edit func([]*reflector) []*reflector) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reflectors = edit(slices.Clone(m.reflectors))
}
