// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/record"

	"github.com/refract-project/refract/vk/reflection/internal/evaluation"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
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

// Evaluated returns how often objects of a kind have been evaluated.
func (m *Manager) Evaluated(kind string) uint64 { return m.reflector(kind).evaluated.Load() }

// Paced returns the number of objects of a kind with a remembered time of their last status write.
func (m *Manager) Paced(kind string) int {
	return m.reflector(kind).objects.Delays.Len()
}

// EnqueueAll enqueues every object of a kind again.
func (m *Manager) EnqueueAll(kind string) { m.reflector(kind).enqueueAll() }

// CachedObjects returns the number of cached objects of both clusters, without nodes and IPs, which are shared.
func (m *Manager) CachedObjects() (n int) {
	m.eachInformer(func(i *informer.Informer) {
		if i != m.settings.Nodes && i != m.settings.IPs {
			n += i.Len()
		}
	})
	return n
}

// Env returns the environment of the handler of a kind.
func (m *Manager) Env(kind string) *Env { return m.reflector(kind).env }

// EnvOf returns an environment that has only the options.
func EnvOf(options Options) *Env { return &Env{r: &reflector{m: &Manager{options: options}}} }

// Prepare returns a ready scope of a kind, whose objects and copies a test can set with Put. No workers run.
func (m *Manager) Prepare(ctx context.Context, kind string, local, remote string) *Scope {
	m.ctx = ctx
	m.clients.Start(ctx)
	t := newExtension(local, remote)
	s := m.reflector(kind).newScope(t)
	s.ctx, s.cancel = context.WithCancel(ctx)
	t.set(kind, s)
	m.extensions[local] = t
	s.ready.Store(true)
	s.listed.Store(true)
	return s
}

// OwnNode makes the Manager reflect the pods of its node, as if it had seen the Node.
func (m *Manager) OwnNode() { m.settings.OwnNode() }

// PrepareBeside adds ready scopes of other kinds to the namespace of a scope.
func (m *Manager) PrepareBeside(s *Scope, kinds ...string) {
	for _, kind := range kinds {
		other := m.reflector(kind).newScope(s.namespace)
		other.ctx, other.cancel = context.WithCancel(s.ctx)
		other.ready.Store(true)
		other.listed.Store(true)
		s.namespace.set(kind, other)
	}
}

// Evaluate evaluates one object of a kind, as a worker does, and returns its error.
func (m *Manager) Evaluate(ctx context.Context, w *evaluation.Worker, kind string, key queue.Key) error {
	w.Reset()
	defer w.Settle(key.Name)
	return m.reflector(kind).safely(ctx, w, key)
}

// ReportTo writes the Events of a Manager that does not run to a sink.
func (m *Manager) ReportTo(sink record.EventSink) { m.events.Start(sink) }

// Caches returns the informers of the objects and of their copies.
func (s *Scope) Caches() (objects, copies *informer.Informer) { return s.objects, s.copies }

// Put stores an object and its copy in the caches. A nil copy is not stored.
func (s *Scope) Put(object, copied *unstructured.Unstructured) error {
	if copied == nil {
		return s.objects.Put(object)
	}
	return errors.Join(s.objects.Put(object), s.copies.Put(copied))
}
