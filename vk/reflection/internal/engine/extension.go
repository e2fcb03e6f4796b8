// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/refract-project/refract/vk/reflection/internal/settings"
)

// extension is an offloaded namespace with its scopes.
type extension struct {
	local, remote string
	ctx           context.Context
	cancel        context.CancelFunc
	contexts      *settings.Contexts
	inUse         chan struct{} // closed by used
	usedOnce      sync.Once

	mu     sync.RWMutex
	scopes map[string]*Scope // keyed by kind
}

// newExtension returns the extension for the namespace local of this cluster, which is offloaded to the namespace
// remote. The extension has no scopes yet.
func newExtension(local, remote string) *extension {
	return &extension{contexts: &settings.Contexts{Local: local, Remote: remote}, local: local, remote: remote, scopes: map[string]*Scope{}, inUse: make(chan struct{})}
}

// used records that the namespace contains an object that was created for it, unlike the root CA, which every
// namespace contains.
func (t *extension) used() { t.usedOnce.Do(func() { close(t.inUse) }) }

// of returns the Scope of a kind, or nil if the kind is not reflected.
func (t *extension) of(kind string) *Scope {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.scopes[kind]
}

// set replaces the scope of a kind and returns the previous scope. If c is nil, the scope of the kind is removed.
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
