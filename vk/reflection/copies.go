// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/pods"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/mutationcache"
	"github.com/refract-project/refract/vk/reflection/internal/oscillation"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// copies are the objects of one kind in one extended namespace, and what the provider has of ours in its remote namespace. Nothing
// is evaluated before ready: only then is the absence of an object known rather than assumed.
//
// Both sides are watched in these two namespaces alone, however many objects there are in others.
//
// What was written to them is remembered with them: when a namespace gets another remote namespace, or its remote namespace is made anew, none
// of that is true any more.
type copies struct {
	local    cache.SharedIndexInformer // of this cluster; for kinds of a node that of all its pods
	services cache.SharedIndexInformer // of this namespace; for kinds that follow them
	informer cache.SharedIndexInformer // the copies
	pods     cache.SharedIndexInformer // the provider's pods; kind Pod only
	inbox    *inbox                    // the provider's Events, in place of the informers
	own      []cache.SharedIndexInformer
	heard    []cache.DoneChecker
	ready    atomic.Bool
	writes   *mutationcache.Cache
	memory   *oscillation.Memory
	cancel   context.CancelFunc
	wg       sync.WaitGroup
}

// startCopies begins to reflect a kind in a namespace. The caller holds m.changing.
func (m *Manager) startCopies(r *reflector, t *extension) {
	c, err := m.idleCopies(r, t)
	if err != nil {
		m.log.Error("Namespace cannot be reflected", "namespace", t.local, "kind", r.kind.Name, "err", err)
		return
	}
	var ctx context.Context
	ctx, c.cancel = context.WithCancel(t.ctx)
	t.set(r.kind.Name, c)
	for _, informer := range c.own {
		m.runFor(c, func() { informer.RunWithContext(ctx) })
	}
	if c.inbox != nil {
		m.runFor(c, func() { r.receive(ctx, c) })
		return
	}
	m.runFor(c, func() { m.whenSynced(ctx, r, t, c) })
}

// runFor runs f as a part of both the Manager and the copies.
func (m *Manager) runFor(c *copies, f func()) {
	c.wg.Add(1)
	m.wg.Go(func() {
		defer c.wg.Done()
		f()
	})
}

// idleCopies makes the informers of one kind in one extended namespace.
func (m *Manager) idleCopies(r *reflector, t *extension) (*copies, error) {
	c := &copies{writes: mutationcache.New(m.options.Clock), memory: oscillation.New(m.options.Clock)}
	if r.kind.Reverse {
		c.inbox = newInbox(r, t, c)
		return c, nil
	}
	for _, prepare := range []func(*reflector, *extension, *copies) error{m.watchLocal, m.watchServices, m.watchCopies, m.watchPods, m.watchShadows, m.watchTokenSecrets} {
		if err := prepare(r, t, c); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// watch adds an informer that lives with the copies.
func (c *copies) watch(added cache.SharedIndexInformer, f informer.EventFunc) error {
	c.own = append(c.own, added)
	return c.hear(added, f)
}

// hear adds a handler, and makes the copies wait for what it is told first.
func (c *copies) hear(source cache.SharedIndexInformer, f informer.EventFunc) error {
	heard, err := informer.OnEvent(source, f)
	if err == nil {
		c.heard = append(c.heard, heard.HasSyncedChecker())
	}
	return err
}

func (m *Manager) watchLocal(r *reflector, t *extension, c *copies) (err error) {
	if c.local = r.pods; c.local != nil {
		c.heard = append(c.heard, r.heard.HasSyncedChecker())
		return nil
	}
	indexers := cache.Indexers{}
	if r.kind.FollowsService {
		indexers[serviceIndex] = indexByService
	}
	maps.Copy(indexers, r.tokenIndex())
	if c.local, err = informer.New(m.local, r.kind.Source, informer.Selection{Namespace: t.local}, m.options.ResyncPeriod, nil, indexers); err != nil {
		return err
	}
	return c.watch(c.local, func(before, object *unstructured.Unstructured, deleted bool) {
		r.localChanged(t, c, before, object, deleted)
	})
}

// watchServices shares the informer of the kind Service, which comes before.
func (m *Manager) watchServices(r *reflector, t *extension, c *copies) (err error) {
	if !r.kind.FollowsService {
		return nil
	}
	changed := func(before, service *unstructured.Unstructured, deleted bool) {
		r.serviceChanged(t, c, before, service, deleted)
	}
	if known := t.of(ServiceKind); known != nil {
		c.services = known.local
		return c.hear(c.services, changed)
	}
	if c.services, err = informer.New(m.local, servicesResource, informer.Selection{Namespace: t.local}, m.options.ResyncPeriod, nil, nil); err != nil {
		return err
	}
	return c.watch(c.services, changed)
}

// watchCopies sees only what bears our labels: a foreign object is found out when its name is in the way.
func (m *Manager) watchCopies(r *reflector, t *extension, c *copies) (err error) {
	if c.informer, err = informer.New(m.remote, r.kind.target(), r.ours(t), m.options.ResyncPeriod, m.breaker, r.tokenIndex()); err != nil {
		return err
	}
	return c.watch(c.informer, func(before, object *unstructured.Unstructured, deleted bool) {
		key := Key{Namespace: t.local, Name: r.localName(object.GetName())}
		if echo := c.writes.Seen(key, before, object, deleted); !echo && (deleted || !r.tellsPhase(before, object)) {
			r.enqueue(t, c, key)
		}
	})
}

func (m *Manager) watchPods(r *reflector, t *extension, c *copies) (err error) {
	if r.kind.Name != PodKind {
		return nil
	}
	s := r.ours(t)
	s.NoSpec = true // how they are run there is nobody's business here
	if c.pods, err = informer.New(m.remote, podsResource, s, m.options.ResyncPeriod, m.breaker, nil); err != nil {
		return err
	}
	return c.watch(c.pods, func(_, object *unstructured.Unstructured, _ bool) {
		r.enqueue(t, c, Key{Namespace: t.local, Name: object.GetName()})
	})
}

// ours selects the copies in a remote namespace.
func (r *reflector) ours(t *extension) informer.Selection {
	return informer.Selection{Namespace: t.remote, Labels: r.selector()}
}

func (r *reflector) selector() string {
	selector := labels.Set(r.owned).String()
	if r.kind.Except != "" {
		selector += "," + r.kind.Except
	}
	return selector
}

// tellsPhase tells the step of a ShadowPod that says no more than how its pod is doing: the pod itself is watched. Its
// end is another matter, for then there may be no pod to say it.
func (r *reflector) tellsPhase(before, object *unstructured.Unstructured) bool {
	if r.kind.Name != PodKind || before == nil || before.GetResourceVersion() == object.GetResourceVersion() {
		return false
	}
	phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
	return !pods.Finished(corev1.PodPhase(phase)) && before.GetGeneration() == object.GetGeneration() &&
		raw.Equal(raw.Labels(before.Object), raw.Labels(object.Object)) && raw.Equal(raw.Annotations(before.Object), raw.Annotations(object.Object)) &&
		before.GetUID() == object.GetUID() && (before.GetDeletionTimestamp() == nil) == (object.GetDeletionTimestamp() == nil)
}

// enqueue drops keys that come before the caches are synced: every object is looked at then.
func (r *reflector) enqueue(t *extension, c *copies, key Key) {
	if c.ready.Load() && r.m.extension(t.local) == t {
		r.queue.Add(key)
	}
}

// whenSynced waits for every cache on which the kind depends, and for what they told of while they were filled, then
// looks at every object of both sides: also the copies of objects that were deleted while nobody was looking.
func (m *Manager) whenSynced(ctx context.Context, r *reflector, t *extension, c *copies) {
	needs := append(m.sharedCaches(r.kind), c.heard...)
	if r.volumes != nil {
		needs = append(needs, r.volumes.heard...)
	}
	if !cache.WaitFor(ctx, "", needs...) {
		return
	}
	c.ready.Store(true)
	r.enqueueNamespace(t, c)
	if r.kind.Name == SecretKind && m.options.APIServerSupport == SupportLegacy {
		m.lookAtWaiting(t, "")
	}
	if events := t.of(EventKind); events != nil {
		events.inbox.resume(&r.kind)
	}
	m.log.Info("Namespace is reflected", "namespace", t.local, "remoteNamespace", t.remote, "kind", r.kind.Name)
}

func (r *reflector) enqueueNamespace(t *extension, c *copies) {
	for _, object := range informer.ByIndex(c.local, cache.NamespaceIndex, t.local) {
		r.queue.Add(raw.Key(object))
	}
	for _, name := range c.informer.GetStore().ListKeys() {
		if key, err := cache.ParseObjectName(name); err == nil {
			r.queue.Add(Key{Namespace: t.local, Name: r.localName(key.Name)})
		}
	}
	r.enqueueVolumes(func(namespace string) bool { return namespace == t.local })
}

// enqueueAll looks again at every object of the kind in every namespace that is ready.
func (r *reflector) enqueueAll() {
	for _, t := range r.m.allExtensions() {
		if c := t.of(r.kind.Name); c != nil && c.inbox == nil && c.ready.Load() {
			r.enqueueNamespace(t, c)
		}
	}
}

// managed reports whether an object of the provider bears the labels of what this virtual kubelet made.
func (r *reflector) managed(object *unstructured.Unstructured) bool {
	return r.selects.Matches(labels.Set(object.GetLabels()))
}

// ownership returns the labels by which copies of a kind are known.
func (o Options) ownership(kind Kind) map[string]string {
	owned := wire.ReflectionLabels(o.LocalClusterID, o.RemoteClusterID)
	if kind.PerNode {
		owned[wire.NodeNameLabel] = o.NodeName
	}
	return owned
}
