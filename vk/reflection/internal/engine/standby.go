// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/vk/reflection/internal/informer"
)

// A Manager that stands by keeps the caches that it will need as the leader: the settings, the namespaces, and the
// objects of its node with their copies. It evaluates nothing and writes nothing. Objects that all virtual nodes of a
// provider share are read only after it has become the leader.
//
// Its caches may be behind in a way that is impossible in a running Manager: they may show a copy that the previous
// leader created, but not yet the object of the copy. Such a copy looks like an orphan, and orphans are deleted. So
// when this replica becomes the leader, each cache is compared with the state that the API servers have stored, and
// nothing is evaluated before they agree.

const (
	// behindFirst and behindMost limit the delay before a cache that is behind is checked again.
	behindFirst = 20 * time.Millisecond
	behindMost  = time.Second
	// behindLong is the delay before the log reports that a cache is still behind.
	behindLong = 5 * time.Second
)

// Lead makes a Manager with Options.StandBy the leader, which starts to reflect. Other Managers lead from the start.
func (m *Manager) Lead() { m.leadOnce.Do(func() { close(m.lead) }) }

// leads reports whether Lead was called, or is not required.
func (m *Manager) leads() bool {
	select {
	case <-m.lead:
		return true
	default:
		return false
	}
}

// standBy waits until this replica leads, and its caches of settings, namespaces and its own objects are known to be
// current. It returns false if ctx has ended.
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

// takeOver starts the parts that a Manager does not start while it stands by. Errors in the settings are reported
// again, because only the leader reports.
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
	m.starting.wake()
	close(m.taken)
	m.eachScope((*Scope).stir)
	m.mapper.Report()
	m.virtualNode.Resync()
}

// mayBegin waits until the scope may be evaluated: this replica has taken over, and the caches that were read before
// are known to be current. It returns false if ctx has ended.
func (s *Scope) mayBegin(ctx context.Context, led bool) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.r.m.taken:
	}
	if led {
		return true
	}
	for _, known := range s.informers() {
		if !s.r.m.catchUp(ctx, known.Name()+" in "+s.LocalNamespace(), known.Fence().Behind) {
			return false
		}
	}
	return true
}

// catchUp waits until a cache has caught up. Failed reads are retried.
func (m *Manager) catchUp(ctx context.Context, cache string, behind func(context.Context) (string, error)) bool {
	pause, long := behindFirst, m.options.Clock.After(behindLong)
	for {
		object, err := behind(ctx)
		if err == nil && object == "" {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-long:
			m.log.Warn("Waiting for a cache to catch up with the API server before anything is written", "cache", cache, "object", object, "err", err)
		case <-m.options.Clock.After(pause):
		}
		pause = min(2*pause, behindMost)
	}
}
