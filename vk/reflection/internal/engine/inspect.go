// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/internal/informer"
)

// The following methods expose internals of a Manager to tests of other packages.

// Handler returns the handler of a kind, or nil.
func (m *Manager) Handler(kind string) Handler {
	if r := m.reflector(kind); r != nil {
		return r.handler
	}
	return nil
}

// Scope returns the scope of a kind in an offloaded namespace, or nil.
func (m *Manager) Scope(kind, namespace string) *Scope {
	if t := m.extension(namespace); t != nil {
		return t.of(kind)
	}
	return nil
}

// Evaluated returns the number of evaluations of objects of a kind.
func (m *Manager) Evaluated(kind string) uint64 { return m.reflector(kind).evaluated.Load() }

// Paced returns the number of objects of a kind with a remembered time of their last status write.
func (m *Manager) Paced(kind string) int {
	p := &m.reflector(kind).paces
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.byKey)
}

// EnqueueAll enqueues every object of a kind again.
func (m *Manager) EnqueueAll(kind string) { m.reflector(kind).enqueueAll() }

// CachedObjects returns the number of cached objects of both clusters, without nodes and IPs, which are shared.
func (m *Manager) CachedObjects() (n int) {
	m.eachInformer(func(i *informer.Informer) {
		if i != m.nodes && i != m.ips {
			n += i.Len()
		}
	})
	return n
}

// Env returns the environment of the handler of a kind.
func (m *Manager) Env(kind string) *Env { return newEnv(m.reflector(kind)) }

// EnvOf returns an environment that has only options.
func EnvOf(options Options) *Env { return newEnv(&reflector{m: &Manager{options: options}}) }

// Prepare returns a ready scope, without running workers, with an object and its copy.
func (m *Manager) Prepare(ctx context.Context, kind string, local, remote string) *Scope {
	m.ctx = ctx
	m.breaker.Start(ctx)
	t := newExtension(local, remote)
	s := m.reflector(kind).newScope(t)
	t.set(kind, s)
	m.extensions[local] = t
	s.ready.Store(true)
	s.listed.Store(true)
	return s
}

// PrepareBeside adds ready scopes of other kinds to the namespace of a scope.
func (m *Manager) PrepareBeside(s *Scope, kinds ...string) {
	for _, kind := range kinds {
		other := m.reflector(kind).newScope(s.namespace)
		other.ready.Store(true)
		other.listed.Store(true)
		s.namespace.set(kind, other)
	}
}

// Put puts an object and its copy into the caches.
func (s *Scope) Put(object, copied *unstructured.Unstructured) error {
	return errors.Join(s.objects.Put(object), s.copies.Put(copied))
}
