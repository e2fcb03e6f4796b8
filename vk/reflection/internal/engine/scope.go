// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection/internal/content"
	"github.com/refract-project/refract/vk/reflection/internal/copies"
	"github.com/refract-project/refract/vk/reflection/internal/informer"
	"github.com/refract-project/refract/vk/reflection/internal/queue"
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
	// Namespace contains the state of the written copies, and the names of both namespaces.
	*copies.Namespace
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
	steps                   queue.Steps
	deniedHere, deniedThere denial
	cancel                  context.CancelFunc
	wg                      sync.WaitGroup
}

// Ready reports whether both sides have been read.
func (s *Scope) Ready() bool { return s.ready.Load() }

// SetReady marks the scope as ready. It is for the handlers of reversed kinds, because only these know when their own
// watches have been read.
func (s *Scope) SetReady() { s.ready.Store(true) }

// Enqueue adds an object to the queue. Before the scope is ready, the object is dropped, because every object is
// enqueued when the scope becomes ready.
func (s *Scope) Enqueue(key queue.Key) {
	if s.ready.Load() && s.r.m.extension(s.Local) == s.namespace {
		s.r.queue.Add(key)
	}
}

// Object returns an object of this cluster that is at least as new as our last write to it, or nil.
func (s *Scope) Object(key queue.Key) *unstructured.Unstructured {
	return s.r.objects.View(key, func() *unstructured.Unstructured { return s.objects.Get(key.Namespace, key.Name) })
}

// Copy returns the copy of an object that is at least as new as our last write to it, or nil. going reports whether
// this process has deleted the copy, but the watch has not delivered the deletion yet.
func (s *Scope) Copy(name string) (object *unstructured.Unstructured, going bool) {
	return s.View(s.Key(name), func() *unstructured.Unstructured { return s.CachedCopy(name) })
}

// PeekCopy returns the same copy as Copy, but a packed copy stays packed. It is for evaluations that visit all objects,
// such as a rehearsal.
func (s *Scope) PeekCopy(name string) (object *unstructured.Unstructured, going bool) {
	remote := queue.Key{Namespace: s.Remote, Name: s.r.copies.RemoteName(name)}
	return s.View(s.Key(name), func() *unstructured.Unstructured { return s.copies.Peek(remote) })
}

// CachedCopy returns the copy of an object as the watch last delivered it, or nil.
func (s *Scope) CachedCopy(name string) *unstructured.Unstructured {
	return s.copies.Get(s.Remote, s.r.copies.RemoteName(name))
}

// Objects returns the objects of this cluster.
func (s *Scope) Objects() []*unstructured.Unstructured { return s.objects.In(s.Local) }

// ObjectsBy returns the objects with a value of an index of the kind; see Cache.Indexers.
func (s *Scope) ObjectsBy(index, value string) []*unstructured.Unstructured {
	return s.objects.By(index, value)
}

// CopiesBy returns the copies with a value of an index of the kind; see Cache.Indexers.
func (s *Scope) CopiesBy(index, value string) []*unstructured.Unstructured {
	return s.copies.By(index, value)
}

// OnObject calls f for every change to the objects. The scope is not ready before f has been called for the existing
// objects.
func (s *Scope) OnObject(f informer.EventFunc) { s.listen(s.objects, f) }

// OnCopy calls f for every change to the copies of a scope, which is this one or another scope of the same namespace.
// This scope is not ready before f has been called for the existing copies.
func (s *Scope) OnCopy(of *Scope, f informer.EventFunc) { s.listen(of.copies, f) }

// WatchLocal watches further objects of the namespace. The informer is shared with the kind of that name if it is
// reflected and was started earlier. The scope is not ready before f has been called for the existing objects.
func (s *Scope) WatchLocal(kind string, resource schema.GroupVersionResource, f informer.EventFunc) *informer.Informer {
	var watched *informer.Informer
	if known := s.namespace.of(kind); known != nil {
		watched = known.objects
	} else {
		watched = s.r.m.clients.Here.New(resource, informer.Options{Selection: informer.Selection{Namespace: s.Local}})
		s.local = append(s.local, watched)
	}
	s.listen(watched, f)
	return watched
}

// WatchRemote watches further objects of the remote namespace that have the labels of our copies.
func (s *Scope) WatchRemote(resource schema.GroupVersionResource, trim informer.Trim, f informer.EventFunc) *informer.Informer {
	added := s.r.m.clients.There.New(resource, informer.Options{Selection: s.ours(), Trim: trim})
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
func (s *Scope) Forget(key queue.Key) {
	s.Namespace.Forget(key)
	s.r.forget(key)
	s.r.mutator.Release(key.Namespace, key.Name)
}

// forget drops the remembered state of a deleted object.
func (r *reflector) forget(key queue.Key) {
	r.objects.Forget(key)
	r.queue.Forget(key)
}

// MayCross reports whether the policy allows the reflection of an object, or cannot decide.
func (s *Scope) MayCross(object *unstructured.Unstructured) bool {
	decided, err := s.r.handler.Decide(s, object)
	return err != nil || decided.Cross
}

// OnRun registers f to run until the scope ends.
func (s *Scope) OnRun(f func(context.Context)) { s.run = append(s.run, f) }

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
	s := &Scope{r: r, namespace: t}
	s.Namespace = copies.NewNamespace(t.local, t.remote, s.cause, r.m.options.Clock)
	if !r.kind.Reverse {
		s.watchObjects()
		s.watchCopies()
	}
	r.handler.Extend(s)
	return s
}

// informers returns the informers that belong to the scope.
func (s *Scope) informers() []*informer.Informer { return slices.Concat(s.local, s.remote) }

// listen adds a handler to an informer, and makes the scope wait until the handler was called for the existing objects.
func (s *Scope) listen(source *informer.Informer, f informer.EventFunc) {
	s.undo = append(s.undo, source.OnEvent(f))
	if !slices.Contains(s.remote, source) {
		s.needs = append(s.needs, source)
	}
}

// watchObjects watches the objects of this cluster. The objects of a node are watched once for all namespaces.
func (s *Scope) watchObjects() {
	r := s.r
	s.objects = r.ofNode
	if s.objects == nil {
		s.objects = r.m.clients.Here.New(r.kind.Source, informer.Options{
			Selection: informer.Selection{Namespace: s.Local}, Indexers: r.kind.Cache.Indexers, Private: r.kind.Chain.Confidential,
			Trim: content.Trimmer(r.kind.Cache.Objects, nil), Listed: s.listedHere,
		})
		s.objects.OnEvent(s.objectChanged)
		s.local = append(s.local, s.objects)
	}
	s.needs = append(s.needs, s.objects)
}

// watchCopies watches only objects with our labels. A foreign object is found when it has the name of a copy.
func (s *Scope) watchCopies() {
	r := s.r
	s.copies = r.m.clients.There.New(r.copies.Resource, informer.Options{Selection: s.ours(), Indexers: r.kind.Cache.Indexers, Private: r.kind.Chain.Confidential, Trim: r.copies.Trim, Listed: s.listedThere})
	s.remote = append(s.remote, s.copies)
	s.copies.OnEvent(func(before, object *unstructured.Unstructured, deleted bool) {
		key := s.Key(r.copies.LocalName(object.GetName()))
		if echo := s.Seen(key, before, object, deleted); !echo && (deleted || r.handler.CopyMatters(before, object)) {
			s.Enqueue(key)
		}
	})
}

// ours selects the copies in a remote namespace.
func (s *Scope) ours() informer.Selection {
	return informer.Selection{Namespace: s.Remote, Labels: s.r.copies.Selector()}
}

// enqueueAll enqueues every object of both sides.
func (s *Scope) enqueueAll() { s.enqueueEach(s.r.queue.Add) }

// enqueueEach calls enqueue for every object of both sides.
func (s *Scope) enqueueEach(enqueue func(queue.Key)) {
	for _, object := range s.Objects() {
		// An object of a node may be older than the scope.
		s.noteUse(object)
		enqueue(raw.Key(object))
	}
	for _, copied := range s.copies.All() {
		enqueue(s.Key(s.r.copies.LocalName(copied.GetName())))
	}
}

// recheckUnobserved enqueues the objects whose writes the watch has not delivered.
func (s *Scope) recheckUnobserved() {
	for _, key := range s.Unobserved(func(key queue.Key) *unstructured.Unstructured { return s.CachedCopy(key.Name) }) {
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
		s.r.events.OK(object.GetUID())
	} else if s.deniedThere.lasts() {
		s.warnOfDenial(object)
	}
	if !s.r.objects.Seen(before, object, deleted) {
		if before == nil || before.GetResourceVersion() != object.GetResourceVersion() {
			s.steps.Changed(key.Name)
		}
		s.Enqueue(key)
	}
}

// cause returns the hash of all inputs of a copy: the object without bookkeeping, the context of its handler, the
// settings for its kind, and its plugins. Therefore a user who changes a plugin and goes back several times does not
// count as a fight.
func (s *Scope) cause(local *unstructured.Unstructured) uint64 {
	r := s.r
	sum := content.IntentHash(local) + r.m.settings.Hash() + content.FieldHash("swaps", document.Of(int64(r.swaps.Load())))
	if r.kind.Follows.Network {
		sum += r.m.settings.NodesHash()
	}
	if r.kind.Follows.Namespaces {
		sum += content.FieldHash("namespaces", document.Of(r.m.remoteNamespaces()))
	}
	if field, value := r.handler.Context(s, local); len(value) > 0 {
		sum += content.FieldHash(field, document.Of(value))
	}
	return sum
}

// outgoing returns the context root for an object: the root of the namespace plus the field that the kind's handler
// adds.
func (s *Scope) outgoing(local *unstructured.Unstructured) map[string]any {
	root := s.Context(host.Outgoing)
	field, value := s.r.handler.Context(s, local)
	if len(value) == 0 && !s.r.kind.Follows.Namespaces {
		return root
	}
	root = maps.Clone(root)
	if len(value) > 0 {
		root[field] = value
	}
	if s.r.kind.Follows.Namespaces {
		root["namespaces"] = s.r.m.remoteNamespaces()
	}
	return root
}

// Context returns the plugins' context of a hook. It is shared and must not be modified.
func (s *Scope) Context(hook host.Hook) map[string]any {
	return s.r.m.settings.Context(s.namespace.contexts, hook)
}
