// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/oscillation"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/mutationcache"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

// Scope is one kind in one offloaded namespace: its objects here, and their copies in the remote namespace. Nothing is
// evaluated before the scope is ready, because the absence of an object is not certain before.
//
// Both sides are watched in these two namespaces only, regardless of the objects in other namespaces.
//
// The state of the written copies belongs to the scope: it becomes invalid when the namespace gets another remote
// namespace, or its remote namespace is recreated.
type Scope struct {
	// State belongs to the handler, which sets it in Extend.
	State any

	r                       *reflector
	namespace               *extension
	objects                 *informer.Informer // objects here; for kinds with PerNode, all objects of the node
	copies                  *informer.Informer
	local                   []*informer.Informer    // informers of this cluster that end with the scope
	remote                  []*informer.Informer    // informers that run while there are objects; copies is the first
	needs                   []cache.DoneChecker     // required caches of this cluster, or of other scopes
	run                     []func(context.Context) // functions that run until the scope ends
	undo                    []func()                // cleanup after the end of the scope
	asleep                  atomic.Bool             // there is nothing to watch
	ctx                     context.Context         // ends with the scope
	ready                   atomic.Bool
	listed                  atomic.Bool // the objects were listed and have been enqueued since
	steps                   steps
	deniedHere, deniedThere denial
	writes                  *mutationcache.Cache
	accepted                acceptances
	fights                  *oscillation.Guard[Key] // guards the copies
	cancel                  context.CancelFunc
	wg                      sync.WaitGroup
}

// LocalNamespace returns the offloaded namespace.
func (s *Scope) LocalNamespace() string { return s.namespace.local }

// RemoteNamespace returns the namespace of the copies on the provider.
func (s *Scope) RemoteNamespace() string { return s.namespace.remote }

// Key returns the key of an object in the local namespace.
func (s *Scope) Key(name string) Key { return Key{Namespace: s.namespace.local, Name: name} }

// Ready reports whether both sides have been read.
func (s *Scope) Ready() bool { return s.ready.Load() }

// SetReady marks the scope as ready. It is for the handlers of reversed kinds, because only these know when their own
// watches have been read.
func (s *Scope) SetReady() { s.ready.Store(true) }

// Enqueue adds an object to the queue. Before the scope is ready, the object is dropped, because every object is
// enqueued when the scope becomes ready.
func (s *Scope) Enqueue(key Key) {
	if s.ready.Load() && s.r.m.extension(s.namespace.local) == s.namespace {
		s.r.queue.Add(key)
	}
}

// Object returns an object of this cluster that is at least as new as our last write to it, or nil.
func (s *Scope) Object(key Key) *unstructured.Unstructured {
	object, _ := s.r.localWrites.View(key, s.objects.Get(key.Namespace, key.Name))
	return object
}

// Copy returns the copy of an object that is at least as new as our last write to it, or nil. going reports that our
// deletion of the copy is under way.
func (s *Scope) Copy(name string) (object *unstructured.Unstructured, going bool) {
	return s.writes.View(s.Key(name), s.CachedCopy(name))
}

// CachedCopy returns the copy of an object as the watch last delivered it, or nil.
func (s *Scope) CachedCopy(name string) *unstructured.Unstructured {
	return s.copies.Get(s.namespace.remote, s.r.remoteName(name))
}

// Objects returns the objects of this cluster.
func (s *Scope) Objects() []*unstructured.Unstructured { return s.objects.In(s.namespace.local) }

// ObjectsBy returns the objects with a value of an index of the kind; see Cache.Indexers.
func (s *Scope) ObjectsBy(index, value string) []*unstructured.Unstructured {
	return s.objects.By(index, value)
}

// CopiesBy returns the copies with a value of an index of the kind; see Cache.Indexers.
func (s *Scope) CopiesBy(index, value string) []*unstructured.Unstructured {
	return s.copies.By(index, value)
}

// IsGone reports whether the deletion of the copy with a uid was delivered by the watch.
func (s *Scope) IsGone(uid types.UID) bool { return s.writes.IsGone(uid) }

// OnObject calls f for every change of the objects. The scope is not ready before f has been called for the existing
// objects.
func (s *Scope) OnObject(f informer.EventFunc) { s.listen(s.objects, f) }

// OnCopy calls f for every change of the copies of a scope, which is this one or another scope of the same namespace.
// This scope is not ready before f has been called for the existing copies.
func (s *Scope) OnCopy(of *Scope, f informer.EventFunc) { s.listen(of.copies, f) }

// WatchLocal watches further objects of the namespace. The informer is shared with the kind of that name if it is
// reflected and was started earlier. The scope is not ready before f has been called for the existing objects.
func (s *Scope) WatchLocal(kind string, resource schema.GroupVersionResource, f informer.EventFunc) *informer.Informer {
	var watched *informer.Informer
	if known := s.namespace.of(kind); known != nil {
		watched = known.objects
	} else {
		watched = s.r.m.here.New(resource, informer.Options{Selection: informer.Selection{Namespace: s.namespace.local}})
		s.local = append(s.local, watched)
	}
	s.listen(watched, f)
	return watched
}

// WatchRemote watches further objects of the remote namespace that have the labels of our copies.
func (s *Scope) WatchRemote(resource schema.GroupVersionResource, trim informer.Trim, f informer.EventFunc) *informer.Informer {
	added := s.r.m.there.New(resource, informer.Options{Selection: s.ours(), Trim: trim})
	added.OnEvent(f)
	s.remote = append(s.remote, added)
	return added
}

// Used returns a channel that is closed when the namespace is known to have, or to have had, an object of its own. The
// root CA, which all namespaces have, does not count.
func (s *Scope) Used() <-chan struct{} { return s.namespace.inUse }

// noteUse marks the namespace as used if the object is one of its own.
func (s *Scope) noteUse(object *unstructured.Unstructured) {
	if s.r.kind.Unless == nil || !s.r.kind.Unless(object.GetName()) {
		s.namespace.used()
	}
}

// Forget drops the remembered state of a deleted object and its copy.
func (s *Scope) Forget(key Key) { s.forget(key) }

// MayCross reports whether the policy allows an object to cross, or cannot decide.
func (s *Scope) MayCross(object *unstructured.Unstructured) bool {
	decided, err := s.r.handler.Decide(s, object)
	return err != nil || decided.Cross
}

// OnRun registers f to run until the scope ends.
func (s *Scope) OnRun(f func(context.Context)) { s.run = append(s.run, f) }

// startScope begins to reflect a kind in a namespace. The caller holds m.changing.
func (m *Manager) startScope(r *reflector, t *extension) {
	s := r.newScope(t)
	ctx, cancel := context.WithCancel(t.ctx)
	s.ctx, s.cancel = ctx, cancel
	context.AfterFunc(ctx, func() {
		for _, undo := range s.undo {
			undo()
		}
		s.steps.wakeAll()
	})
	t.set(r.kind.Name, s)
	for _, own := range s.local {
		s.runFor(func() { own.Run(ctx) })
	}
	for _, f := range s.run {
		s.runFor(func() { f(ctx) })
	}
	if !r.kind.Reverse {
		s.runFor(func() { s.follow(ctx) })
	}
}

// stopScope ends the reflection of a kind in a namespace, and returns the scope that is ending, or nil. The copies on
// the provider stay. The caller holds m.changing.
func (m *Manager) stopScope(r *reflector, t *extension) *Scope {
	s := t.set(r.kind.Name, nil)
	if s != nil {
		s.cancel()
	}
	return s
}

// runFor runs f as a part of both the Manager and the scope.
func (s *Scope) runFor(f func()) {
	s.wg.Add(1)
	s.r.m.wg.Go(func() {
		defer s.wg.Done()
		f()
	})
}

// newScope creates the informers of one kind in one offloaded namespace.
func (r *reflector) newScope(t *extension) *Scope {
	s := &Scope{
		r: r, namespace: t,
		writes: mutationcache.New(r.m.options.Clock), fights: oscillation.New[Key](r.m.options.Clock, oscillation.Standard),
	}
	if !r.kind.Reverse {
		s.watchObjects()
		s.watchCopies()
	}
	r.handler.Extend(s)
	return s
}

// informers returns the informers that belong to the scope.
func (s *Scope) informers() []*informer.Informer { return slices.Concat(s.local, s.remote) }

// listen adds a handler to an informer of another kind, and makes the scope wait until the handler was called for the
// existing objects.
func (s *Scope) listen(source *informer.Informer, f informer.EventFunc) {
	s.undo = append(s.undo, source.OnEvent(f))
	if !slices.Contains(s.remote, source) {
		s.needs = append(s.needs, source)
	}
}

func (s *Scope) watchObjects() {
	r := s.r
	s.objects = r.ofNode
	if s.objects == nil {
		s.objects = r.m.here.New(r.kind.Source, informer.Options{
			Selection: informer.Selection{Namespace: s.namespace.local}, Indexers: r.kind.Cache.Indexers, Private: r.kind.Chain.Confidential,
			Trim: trimmer(r.kind.Cache.Objects, nil), Listed: s.listedHere,
		})
		s.objects.OnEvent(s.objectChanged)
		s.local = append(s.local, s.objects)
	}
	s.needs = append(s.needs, s.objects)
}

// watchCopies watches only objects with our labels. A foreign object is found when it has the name of a copy.
func (s *Scope) watchCopies() {
	r := s.r
	s.copies = r.m.there.New(r.kind.target(), informer.Options{Selection: s.ours(), Indexers: r.kind.Cache.Indexers, Private: r.kind.Chain.Confidential, Trim: r.trimCopy, Listed: s.listedThere})
	s.remote = append(s.remote, s.copies)
	s.copies.OnEvent(func(before, object *unstructured.Unstructured, deleted bool) {
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
	if r.kind.Copy.Except != "" {
		selector += "," + r.kind.Copy.Except
	}
	return selector
}

// enqueueAll enqueues every object of both sides.
func (s *Scope) enqueueAll() {
	for _, object := range s.Objects() {
		s.noteUse(object) // an object of a node may be older than the scope
		s.r.queue.Add(raw.Key(object))
	}
	for _, copied := range s.copies.All() {
		s.r.queue.Add(s.Key(s.r.localName(copied.GetName())))
	}
}

// recheckUnobserved enqueues the objects whose writes the watch has not delivered.
func (s *Scope) recheckUnobserved() {
	for _, key := range s.writes.Unobserved(func(key Key) *unstructured.Unstructured { return s.CachedCopy(key.Name) }) {
		s.r.queue.Add(key)
	}
}

// objectChanged enqueues an object of this cluster, unless the event only echoes our own write.
func (s *Scope) objectChanged(before, object *unstructured.Unstructured, deleted bool) {
	s.stir()
	s.noteUse(object)
	if !deleted && !s.r.handler.ObjectMatters(before, object) {
		return
	}
	key := raw.Key(object)
	if deleted {
		s.r.m.events.OK(s.r.kind.Name, object.GetUID())
	} else if s.deniedThere.lasts() {
		s.warnOfDenial(object)
	}
	if !s.r.localWrites.Seen(key, before, object, deleted) {
		if before == nil || before.GetResourceVersion() != object.GetResourceVersion() {
			s.steps.changed(key.Name)
		}
		s.Enqueue(key)
	}
}

// enqueueAll enqueues every object of the kind in every ready namespace.
func (r *reflector) enqueueAll() {
	for _, t := range r.m.allExtensions() {
		if s := t.of(r.kind.Name); s != nil && !r.kind.Reverse && s.ready.Load() {
			s.enqueueAll()
		}
	}
}

// managed reports whether an object of the provider bears the labels of objects that this virtual kubelet created.
func (r *reflector) managed(object *unstructured.Unstructured) bool {
	return r.selects.Matches(labels.Set(object.GetLabels()))
}

// ownership returns the labels that identify copies of a kind.
func (o Options) ownership(kind Kind) map[string]string {
	owned := wire.ReflectionLabels(o.LocalClusterID, o.RemoteClusterID)
	if kind.PerNode {
		owned[wire.NodeNameLabel] = o.NodeName
	}
	return owned
}
