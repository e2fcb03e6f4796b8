// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/vk/reflection/internal/informer"
)

// Lead makes a Manager with Options.StandBy the leader, so that it starts to reflect. A Manager without
// Options.StandBy is the leader from the start.
func (m *Manager) Lead() { m.leadOnce.Do(func() { close(m.lead) }) }

// standBy waits until this replica is the leader, and until its caches of settings, namespaces and objects of its
// node are certainly current. It returns false if ctx has ended.
func (m *Manager) standBy(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-m.lead:
	}
	started := m.options.Clock.Now()
	shared := make([]*informer.Informer, 0, len(m.informers))
	needs := []cache.DoneChecker{m.mapper.SyncedChecker()}
	for _, known := range m.informers {
		shared, needs = append(shared, known), append(needs, known)
	}
	if !cache.WaitFor(ctx, "", needs...) || !m.catchUp(ctx, "NamespaceMap", m.mapper.Behind) {
		return false
	}
	for _, known := range shared {
		if !m.catchUp(ctx, known.Name(), known.Fence().Behind) {
			return false
		}
	}
	m.log.Info("Took over from the replica that led", "cachesConfirmedAfter", m.options.Clock.Since(started).String())
	return true
}

// takeOver starts the parts that a Manager does not start while it stands by. It also reports errors in the settings
// that were found before, because only the leader reports errors.
func (m *Manager) takeOver() {
	m.changing.Lock()
	defer m.changing.Unlock()
	for _, r := range m.all() {
		for _, t := range m.allExtensions() {
			if m.isOurs(&r.kind) && t.of(r.kind.Name) == nil {
				m.startScope(r, t)
			}
		}
	}
	m.starting.Wake()
	close(m.taken)
	m.eachScope((*Scope).stir)
	m.mapper.Report()
	m.settings.VirtualNode.Resync()
}
