// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/internal/raw"

	"golang.org/x/time/rate"
)

// remote namespace is a namespace that is extended, and what of it is reflected.
type extension struct {
	local, remote string
	ctx           context.Context
	cancel        context.CancelFunc
	contexts      atomic.Pointer[contexts]
	warnings      *rate.Limiter // of the provider's that are shown here

	mu     sync.RWMutex
	copies map[string]*copies // by kind
}

// of returns what is known of a kind, nil when it is not reflected.
func (t *extension) of(kind string) *copies {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.copies[kind]
}

// set puts what is known of a kind, nil for nothing any more, and returns what was there.
func (t *extension) set(kind string, c *copies) (before *copies) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before = t.copies[kind]
	if c == nil {
		delete(t.copies, kind)
	} else {
		t.copies[kind] = c
	}
	return before
}

// localSynced reports whether this cluster's side of the namespace has been read.
func (t *extension) localSynced() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, c := range t.copies {
		if c.inbox == nil && !c.local.HasSynced() {
			return false
		}
	}
	return true
}

// remote namespace returns the remote namespace of a local namespace, or nil.
func (m *Manager) extension(local string) *extension {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.extensions[local]
}

func (m *Manager) allExtensions() []*extension {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := make([]*extension, 0, len(m.extensions))
	for _, t := range m.extensions {
		all = append(all, t)
	}
	return all
}

// StartNamespace begins to reflect a namespace; it does not wait for the provider. (namespaces.Handler)
func (m *Manager) StartNamespace(local, remote string) {
	m.changing.Lock()
	defer m.changing.Unlock()
	t := &extension{local: local, remote: remote, copies: map[string]*copies{}, warnings: rate.NewLimiter(warningsPerSecond, warningsBurst)}
	t.ctx, t.cancel = context.WithCancel(m.ctx)
	m.mu.Lock()
	m.extensions[local] = t
	m.metrics.namespaces.Set(float64(len(m.extensions)))
	m.mu.Unlock()
	for _, r := range m.all() {
		m.startCopies(r, t)
	}
}

// StopNamespace ends it. What is on the provider stays. (namespaces.Handler)
func (m *Manager) StopNamespace(local string) {
	m.changing.Lock()
	defer m.changing.Unlock()
	m.mu.Lock()
	t := m.extensions[local]
	delete(m.extensions, local)
	m.metrics.forget(local)
	m.metrics.namespaces.Set(float64(len(m.extensions)))
	m.mu.Unlock()
	if t != nil {
		t.cancel()
	}
}

// NamespacesChanged looks at the pods and volumes of namespaces that are not extended, and tells who asked to be told.
// (namespaces.Handler)
func (m *Manager) NamespacesChanged() {
	for _, changed := range m.allListeners() {
		changed()
	}
	m.enqueueVolumesNotOffloaded()
	m.enqueuePodsNotOffloaded()
}

// enqueuePodsNotOffloaded looks at the pods of this node whose namespaces are not extended.
func (m *Manager) enqueuePodsNotOffloaded() {
	r := m.reflector(PodKind)
	if r == nil || !r.pods.HasSynced() {
		return
	}
	for _, object := range r.pods.GetStore().List() {
		if u, ok := object.(*unstructured.Unstructured); ok && m.extension(u.GetNamespace()) == nil {
			r.queue.Add(raw.Key(u))
		}
	}
}
