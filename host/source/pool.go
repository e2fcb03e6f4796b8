// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"crypto/sha256"
	"sync"

	"github.com/refract-project/refract/host"
)

// digest identifies a module together with its options.
type digest [sha256.Size]byte

// pool contains the loaded modules. A module with several users is loaded once, and closed when its last user releases
// it.
type pool struct {
	mu      sync.Mutex
	modules map[digest]*loaded
	closing sync.WaitGroup
}

// loaded is a loaded module and the number of its users.
type loaded struct {
	key    digest
	plugin *host.Plugin
	users  int
}

// share adds a user to a module and returns the module, which the caller must release. If the module is not loaded,
// share returns nil.
func (p *pool) share(key digest) *loaded {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.modules[key]
	if m != nil {
		m.users++
	}
	return m
}

// add adds a module with one user.
func (p *pool) add(key digest, plugin *host.Plugin) *loaded {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := &loaded{key: key, plugin: plugin, users: 1}
	p.modules[key] = m
	return m
}

// release removes a user of a module. After the last user was removed, the plugin is closed in the background,
// because Close waits for running calls.
func (p *pool) release(ctx context.Context, m *loaded) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m.users--; m.users > 0 {
		return
	}
	delete(p.modules, m.key)
	p.closing.Go(func() { _ = m.plugin.Close(context.WithoutCancel(ctx)) })
}
