// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/mutationcache"
	"github.com/refract-project/refract/vk/reflection/internal/oscillation"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// Scope is one kind in one extended namespace: its objects here, and what the provider has of ours in the remote namespace.
// Nothing is evaluated before it is ready: only then is the absence of an object known rather than assumed.
//
// Both sides are watched in these two namespaces alone, however many objects there are in others.
//
// What was written to the copies is remembered with them: when a namespace gets another remote namespace, or its remote
// namespace is recreated, none of that is true any more.
type Scope struct {
	// State is the handler's own, set in Extend.
	State any

	r         *reflector
	namespace *extension
	objects   cache.SharedIndexInformer // of this cluster; for kinds of a node that of all its objects
	services  cache.SharedIndexInformer // of this namespace; for kinds that follow them
	copies    cache.SharedIndexInformer
	informers []cache.SharedIndexInformer // that live with the scope
	run       []func(context.Context)     // as long as it is there
	heard     []cache.DoneChecker
	ready     atomic.Bool
	writes    *mutationcache.Cache
	memory    *oscillation.Memory
	cancel    context.CancelFunc
	wg        sync.WaitGroup
}

// LocalNamespace is the namespace that is extended.
func (s *Scope) LocalNamespace() string { return s.namespace.local }

// RemoteNamespace is where the provider has the copies.
func (s *Scope) RemoteNamespace() string { return s.namespace.remote }

// Key is that of an object of the namespace.
func (s *Scope) Key(name string) Key { return Key{Namespace: s.namespace.local, Name: name} }

// Ready reports whether both sides are known.
func (s *Scope) Ready() bool { return s.ready.Load() }

// SetReady is for the handlers of reversed kinds: nobody else knows when their own watches have been read.
func (s *Scope) SetReady() { s.ready.Store(true) }

// Enqueue has an object looked at. Before the scope is ready that is dropped: every object is looked at then.
func (s *Scope) Enqueue(key Key) {
	if s.ready.Load() && s.r.m.extension(s.namespace.local) == s.namespace {
		s.r.queue.Add(key)
	}
}

// Object returns an object of this cluster, at least as new as our last write to it, or nil.
func (s *Scope) Object(key Key) *unstructured.Unstructured {
	object, _ := s.r.localWrites.View(key, informer.Get(s.objects, key.Namespace, key.Name))
	return object
}

// Copy returns the copy of an object, at least as new as our last write, or nil; going while its deletion by us is under way.
func (s *Scope) Copy(name string) (object *unstructured.Unstructured, going bool) {
	return s.writes.View(s.Key(name), s.CachedCopy(name))
}

// CachedCopy returns the copy of an object as the watch has shown it last, or nil.
func (s *Scope) CachedCopy(name string) *unstructured.Unstructured {
	return informer.Get(s.copies, s.namespace.remote, s.r.remoteName(name))
}

// ObjectsBy returns the objects with a value of an index of the kind; see Kind.Indexers.
func (s *Scope) ObjectsBy(index, value string) []*unstructured.Unstructured {
	return informer.ByIndex(s.objects, index, value)
}

// CopiesBy is ObjectsBy for the copies.
func (s *Scope) CopiesBy(index, value string) []*unstructured.Unstructured {
	return informer.ByIndex(s.copies, index, value)
}

// IsGone reports whether the copy with a uid is known to be gone for good: its deletion was delivered by the watch.
func (s *Scope) IsGone(uid types.UID) bool { return s.writes.IsGone(uid) }

// OnObject has f called for every change of the objects. The scope is not ready before f has been told of those that are there.
func (s *Scope) OnObject(f informer.EventFunc) error { return s.hear(s.objects, f) }

// OnCopy is OnObject for the copies that another scope of the same namespace watches.
func (s *Scope) OnCopy(of *Scope, f informer.EventFunc) error { return s.hear(of.copies, f) }

// WatchRemote watches further objects of the remote namespace: those with the labels of our copies.
func (s *Scope) WatchRemote(resource schema.GroupVersionResource, withoutSpec bool, f informer.EventFunc) (cache.SharedIndexInformer, error) {
	selection := s.ours()
	selection.NoSpec = withoutSpec
	added, err := informer.New(s.r.m.remote, resource, selection, s.r.m.options.ResyncPeriod, s.r.m.breaker, nil)
	if err != nil {
		return nil, err
	}
	return added, s.watch(added, f)
}

// OnRun has f run as long as the scope is there.
func (s *Scope) OnRun(f func(context.Context)) { s.run = append(s.run, f) }

// startScope begins to reflect a kind in a namespace. The caller holds m.changing.
func (m *Manager) startScope(r *reflector, t *extension) {
	s, err := r.newScope(t)
	if err != nil {
		m.log.Error("Namespace cannot be reflected", "namespace", t.local, "kind", r.kind.Name, "err", err)
		return
	}
	var ctx context.Context
	ctx, s.cancel = context.WithCancel(t.ctx)
	t.set(r.kind.Name, s)
	for _, f := range s.run {
		s.runFor(func() { f(ctx) })
	}
	if !r.kind.Reverse {
		s.runFor(func() { s.whenSynced(ctx) })
	}
}

// runFor runs f as a part of both the Manager and the scope.
func (s *Scope) runFor(f func()) {
	s.wg.Add(1)
	s.r.m.wg.Go(func() {
		defer s.wg.Done()
		f()
	})
}

// newScope makes the informers of one kind in one extended namespace.
func (r *reflector) newScope(t *extension) (*Scope, error) {
	s := &Scope{r: r, namespace: t, writes: mutationcache.New(r.m.options.Clock), memory: oscillation.New(r.m.options.Clock)}
	if !r.kind.Reverse {
		for _, prepare := range []func() error{s.watchObjects, s.watchServices, s.watchCopies} {
			if err := prepare(); err != nil {
				return nil, err
			}
		}
	}
	return s, r.handler.Extend(s)
}

// watch adds an informer that lives with the scope.
func (s *Scope) watch(added cache.SharedIndexInformer, f informer.EventFunc) error {
	s.informers = append(s.informers, added)
	s.OnRun(added.RunWithContext)
	return s.hear(added, f)
}

// hear adds a handler, and makes the scope wait until it has seen the objects that are there.
func (s *Scope) hear(source cache.SharedIndexInformer, f informer.EventFunc) error {
	heard, err := informer.OnEvent(source, f)
	if err == nil {
		s.heard = append(s.heard, heard.HasSyncedChecker())
	}
	return err
}

func (s *Scope) watchObjects() (err error) {
	r := s.r
	if s.objects = r.ofNode; s.objects != nil {
		s.heard = append(s.heard, r.heard.HasSyncedChecker())
		return nil
	}
	indexers := cache.Indexers{}
	for name, index := range r.kind.Indexers {
		indexers[name] = index
	}
	if r.kind.FollowsService {
		indexers[serviceIndex] = indexByService
	}
	if s.objects, err = informer.New(r.m.local, r.kind.Source, informer.Selection{Namespace: s.namespace.local}, r.m.options.ResyncPeriod, nil, indexers); err != nil {
		return err
	}
	return s.watch(s.objects, s.objectChanged)
}

// watchServices shares the informer of the kind Service, which comes before.
func (s *Scope) watchServices() (err error) {
	if !s.r.kind.FollowsService {
		return nil
	}
	if known := s.namespace.of(ServiceKind); known != nil {
		s.services = known.objects
		return s.hear(s.services, s.serviceChanged)
	}
	if s.services, err = informer.New(s.r.m.local, servicesResource, informer.Selection{Namespace: s.namespace.local}, s.r.m.options.ResyncPeriod, nil, nil); err != nil {
		return err
	}
	return s.watch(s.services, s.serviceChanged)
}

// watchCopies sees only what bears our labels: a foreign object is found out when its name is in the way.
func (s *Scope) watchCopies() (err error) {
	r := s.r
	if s.copies, err = informer.New(r.m.remote, r.kind.target(), s.ours(), r.m.options.ResyncPeriod, r.m.breaker, r.kind.Indexers); err != nil {
		return err
	}
	return s.watch(s.copies, func(before, object *unstructured.Unstructured, deleted bool) {
		key := s.Key(r.localName(object.GetName()))
		if echo := s.writes.Seen(key, before, object, deleted); !echo && (deleted || r.handler.CopyMatters(before, object)) {
			s.Enqueue(key)
		}
	})
}

// ours selects the copies in a remote namespace.
func (s *Scope) ours() informer.Selection {
	return informer.Selection{Namespace: s.namespace.remote, Labels: s.r.selector()}
}

func (r *reflector) selector() string {
	selector := labels.Set(r.owned).String()
	if r.kind.Except != "" {
		selector += "," + r.kind.Except
	}
	return selector
}

// whenSynced waits for every cache on which the kind depends, and for what they told of while they were filled, then
// looks at every object of both sides: also the copies of objects that were deleted while nobody was looking.
func (s *Scope) whenSynced(ctx context.Context) {
	needs := append(s.r.m.sharedCaches(s.r.kind), s.heard...)
	if !cache.WaitFor(ctx, "", append(needs, s.r.needs...)...) {
		return
	}
	s.ready.Store(true)
	s.enqueueAll()
	for _, r := range s.r.m.all() {
		if own := s.namespace.of(r.kind.Name); own != nil {
			r.handler.Synced(own, &s.r.kind)
		}
	}
	s.r.m.log.Info("Namespace is reflected", "namespace", s.namespace.local, "remoteNamespace", s.namespace.remote, "kind", s.r.kind.Name)
}

// enqueueAll looks at every object of both sides.
func (s *Scope) enqueueAll() {
	for _, object := range informer.ByIndex(s.objects, cache.NamespaceIndex, s.namespace.local) {
		s.r.queue.Add(raw.Key(object))
	}
	for _, name := range s.copies.GetStore().ListKeys() {
		if key, err := cache.ParseObjectName(name); err == nil {
			s.r.queue.Add(s.Key(s.r.localName(key.Name)))
		}
	}
}

// recheckUnobserved looks again at the objects of which the watch should have told, and did not.
func (s *Scope) recheckUnobserved() {
	for _, key := range s.writes.Unobserved(func(key Key) *unstructured.Unstructured { return s.CachedCopy(key.Name) }) {
		s.r.queue.Add(key)
	}
}

// objectChanged enqueues an object of this cluster, unless the event only echoes our own write.
func (s *Scope) objectChanged(before, object *unstructured.Unstructured, deleted bool) {
	if !deleted && !s.r.handler.ObjectMatters(before, object) {
		return
	}
	key := raw.Key(object)
	if deleted {
		s.r.m.events.OK(s.r.kind.Name, object.GetUID())
	}
	if !s.r.localWrites.Seen(key, before, object, deleted) {
		s.Enqueue(key)
	}
}

// enqueueAll looks again at every object of the kind in every namespace that is ready.
func (r *reflector) enqueueAll() {
	for _, t := range r.m.allExtensions() {
		if s := t.of(r.kind.Name); s != nil && !r.kind.Reverse && s.ready.Load() {
			s.enqueueAll()
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
