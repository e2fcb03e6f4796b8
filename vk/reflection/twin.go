// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/pods"
)

// twin is a namespace that is extended, and what the provider has of ours in its twin.
type twin struct {
	local, remote string
	cancel        context.CancelFunc
	copies        map[string]*copies // by kind
	contexts      atomic.Pointer[contexts]
}

// copies are the managed objects of one kind in one twin namespace. Nothing is evaluated before ready: only then is
// the absence of an object known rather than assumed.
//
// What was written to them is remembered with them: when a namespace gets another twin, or its twin is made anew, none
// of that is true any more.
type copies struct {
	informer cache.SharedIndexInformer
	pods     cache.SharedIndexInformer // the provider's pods; kind Pod only
	heard    []cache.DoneChecker       // that of both
	ready    atomic.Bool
	writes   *writeLog
	memory   *memory
}

// twin returns the twin of a local namespace, or nil.
func (m *Manager) twin(local string) *twin {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.twins[local]
}

// StartNamespace begins to reflect a namespace; it does not wait for the provider. (namespaces.Handler)
func (m *Manager) StartNamespace(local, remote string) {
	ctx, cancel := context.WithCancel(m.ctx)
	t := &twin{local: local, remote: remote, cancel: cancel, copies: map[string]*copies{}}
	for _, r := range m.reflectors {
		c, err := m.startCopies(ctx, r, t)
		if err != nil {
			m.log.Error("namespace cannot be reflected", "namespace", local, "kind", r.kind.Name, "error", err)
			continue
		}
		t.copies[r.kind.Name] = c
	}
	m.mu.Lock()
	m.twins[local] = t
	m.metrics.namespaces.Set(float64(len(m.twins)))
	m.mu.Unlock()
	for _, r := range m.reflectors {
		if c := t.copies[r.kind.Name]; c != nil {
			m.wg.Go(func() { m.whenSynced(ctx, r, t, c) })
		}
	}
}

// StopNamespace ends it. What is on the provider stays. (namespaces.Handler)
func (m *Manager) StopNamespace(local string) {
	m.mu.Lock()
	t := m.twins[local]
	delete(m.twins, local)
	m.metrics.forget(local)
	m.metrics.namespaces.Set(float64(len(m.twins)))
	m.mu.Unlock()
	if t != nil {
		t.cancel()
	}
}

// NamespacesChanged looks at the pods of namespaces that are not extended. (namespaces.Handler)
func (m *Manager) NamespacesChanged() {
	r := m.byName[PodKind]
	if r == nil || !r.local.HasSynced() {
		return
	}
	for _, object := range r.local.GetStore().List() {
		if u, ok := object.(*unstructured.Unstructured); ok && m.twin(u.GetNamespace()) == nil {
			r.queue.Add(keyOf(u))
		}
	}
}

func (m *Manager) startCopies(ctx context.Context, r *reflector, t *twin) (*copies, error) {
	c, err := m.idleCopies(r, t)
	if err != nil {
		return nil, err
	}
	m.startInformer(ctx, c.informer)
	if c.pods != nil {
		m.startInformer(ctx, c.pods)
	}
	return c, nil
}

// idleCopies makes the informers of one kind in one twin namespace. They see only what bears our labels: a foreign
// object is found out when its name is in the way.
func (m *Manager) idleCopies(r *reflector, t *twin) (*copies, error) {
	s := selection{namespace: t.remote, labels: labels.Set(r.owned).String()}
	informer, err := newInformer(m.remote, r.kind.target(), s, m.options.ResyncPeriod, m.gate, nil)
	if err != nil {
		return nil, err
	}
	c := &copies{informer: informer, writes: newWriteLog(m.options.Clock), memory: newMemory(m.options.Clock)}
	heard, err := onEvent(informer, func(before, object *unstructured.Unstructured, deleted bool) {
		key := Key{Namespace: t.local, Name: object.GetName()}
		if echo := c.writes.seen(key, before, object, deleted); !echo && (deleted || !r.tellsPhase(before, object)) {
			r.enqueue(t, c, key)
		}
	})
	if err != nil {
		return nil, err
	}
	c.heard = []cache.DoneChecker{heard.HasSyncedChecker()}
	if r.kind.Name != PodKind {
		return c, nil
	}
	if c.pods, err = newInformer(m.remote, podsResource, s, m.options.ResyncPeriod, m.gate, nil); err != nil {
		return nil, err
	}
	heard, err = onEvent(c.pods, func(_, object *unstructured.Unstructured, _ bool) {
		r.enqueue(t, c, Key{Namespace: t.local, Name: object.GetName()})
	})
	if err != nil {
		return nil, err
	}
	c.heard = append(c.heard, heard.HasSyncedChecker())
	return c, nil
}

// tellsPhase tells the step of a ShadowPod that says no more than how its pod is doing: the pod itself is watched. Its
// end is another matter, for then there may be no pod to say it.
func (r *reflector) tellsPhase(before, object *unstructured.Unstructured) bool {
	if r.kind.Name != PodKind || before == nil || before.GetResourceVersion() == object.GetResourceVersion() {
		return false
	}
	phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
	return !pods.Finished(corev1.PodPhase(phase)) && before.GetGeneration() == object.GetGeneration() &&
		sameValue(labelsOf(before.Object), labelsOf(object.Object)) && sameValue(annotationsOf(before.Object), annotationsOf(object.Object)) &&
		before.GetUID() == object.GetUID() && (before.GetDeletionTimestamp() == nil) == (object.GetDeletionTimestamp() == nil)
}

// enqueue drops keys that come before the caches are synced: every object is looked at then.
func (r *reflector) enqueue(t *twin, c *copies, key Key) {
	if c.ready.Load() && r.m.twin(t.local) == t {
		r.queue.Add(key)
	}
}

// whenSynced waits for every cache on which the kind depends, and for what they told of while they were filled, then
// looks at every object of both sides: also the copies of objects that were deleted while nobody was looking.
func (m *Manager) whenSynced(ctx context.Context, r *reflector, t *twin, c *copies) {
	needs := append(m.sharedCaches(r.kind), r.heard.HasSyncedChecker())
	if needs = append(needs, c.heard...); !cache.WaitFor(ctx, "", needs...) {
		return
	}
	c.ready.Store(true)
	r.enqueueNamespace(t, c)
	m.log.Info("namespace is reflected", "namespace", t.local, "remoteNamespace", t.remote, "kind", r.kind.Name)
}

func (r *reflector) enqueueNamespace(t *twin, c *copies) {
	for _, object := range indexed(r.local, cache.NamespaceIndex, t.local) {
		r.queue.Add(keyOf(object))
	}
	for _, name := range c.informer.GetStore().ListKeys() {
		if key, err := cache.ParseObjectName(name); err == nil {
			r.queue.Add(Key{Namespace: t.local, Name: key.Name})
		}
	}
}

// enqueueAll looks again at every object of the kind in every namespace that is ready.
func (r *reflector) enqueueAll() {
	r.m.mu.RLock()
	defer r.m.mu.RUnlock()
	for _, t := range r.m.twins {
		if c := t.copies[r.kind.Name]; c != nil && c.ready.Load() {
			r.enqueueNamespace(t, c)
		}
	}
}

// managed reports whether an object of the provider bears the labels of what this virtual kubelet made.
func (r *reflector) managed(object *unstructured.Unstructured) bool {
	have := labelsOf(object.Object)
	for key, value := range r.owned {
		if have[key] != value {
			return false
		}
	}
	return true
}

// ownership returns the labels by which copies of a kind are known.
func (o Options) ownership(kind Kind) map[string]string {
	owned := wire.ReflectionLabels(o.LocalClusterID, o.RemoteClusterID)
	if kind.PerNode {
		owned[wire.NodeNameLabel] = o.NodeName
	}
	return owned
}
