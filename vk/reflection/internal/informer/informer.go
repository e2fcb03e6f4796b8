// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package informer caches selected unstructured objects, without unused fields.
//
// An Informer consists of client-go's reflector and a store in this package. client-go's shared informers have two more
// queues and five more goroutines for each watch, so that handlers may block. The handlers of an Informer only enqueue
// a key, so they are called by the goroutine that reads the watch. Objects that are not in use are packed to save
// memory: of ten thousand running pods, most do not change.
package informer

import (
	"context"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// Trim removes the fields of an object that are not cached. It must be idempotent.
type Trim func(object *unstructured.Unstructured)

// EventFunc handles an event. before is the previous state of the object, or nil if the object is new or was deleted.
// object is the current state, or the last known state if the object was deleted. An EventFunc must not block.
type EventFunc func(before, object *unstructured.Unstructured, deleted bool)

// Informer lists and watches selected objects while it runs. It keeps the objects when it stops. The returned objects
// must not be modified. An Informer is safe for concurrent use. It implements cache.DoneChecker: it is done when the
// objects have been listed once and the handlers have been called for them.
type Informer struct {
	source    *cache.ListWatch
	stored    func(context.Context) (*metav1.PartialObjectMetadataList, error)
	client    dynamic.Interface
	resource  schema.GroupVersionResource
	namespace string
	trim      Trim
	strings   *Strings
	private   bool
	indexes   cache.Indexers // index functions of objects
	indexer   cache.Indexer  // index of objects in their stored form, *item
	round     atomic.Uint32  // number of calls of Pack

	delivering sync.Mutex // ensures that handlers are called for each change once and in order
	handlers   []*EventFunc
	synced     chan struct{}
	once       sync.Once
}

// Options are the options of an Informer.
type Options struct {
	Selection
	// Trim is applied to each object after DropManagedFields. It may be nil.
	Trim     Trim
	Indexers cache.Indexers
	// Listed is called with the error of each list and of each start of a watch. The error is nil after a success.
	// Listed may be nil.
	Listed func(error)
	// Private means that no part of an object's content is kept after the object is gone. Otherwise strings that occur
	// in many objects may be kept.
	Private bool
}

// New returns an Informer. Run starts it.
func (s *Source) New(resource schema.GroupVersionResource, o Options) *Informer {
	indexers := maps.Clone(o.Indexers)
	if o.Namespace == "" {
		if indexers == nil {
			indexers = cache.Indexers{}
		}
		indexers[cache.NamespaceIndex] = cache.MetaNamespaceIndexFunc
	}
	ofItems := cache.Indexers{}
	for name := range indexers {
		ofItems[name] = indexOf(name)
	}
	source := s.ListWatch(resource, o.Selection)
	if o.Listed != nil {
		observeLists(source, o.Listed)
	}
	return &Informer{
		source: source, stored: s.metadataLister(resource, o.Selection), client: s.Client, resource: resource, namespace: o.Namespace, trim: o.Trim, indexes: indexers,
		strings: s.Strings, private: o.Private, indexer: cache.NewIndexer(itemKey, ofItems), synced: make(chan struct{}),
	}
}

// resyncPeriod is the interval of resyncs. It is so short that the reflector calls ShouldResync as soon as a watch
// starts; see Run.
const resyncPeriod = time.Nanosecond

// Run keeps the objects up to date until ctx is done. It may be called again after it has returned.
func (i *Informer) Run(ctx context.Context) {
	reflector := cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(i.source, i.client), &unstructured.Unstructured{}, (*store)(i),
		cache.ReflectorOptions{Name: "refract", TypeDescription: i.resource.String(), ResyncPeriod: resyncPeriod})
	// For each watch, the reflector starts a goroutine that triggers resyncs. Resyncs are not used (see Resync), so
	// Goexit ends this goroutine. This saves a quarter of all goroutines.
	reflector.ShouldResync = func() bool { runtime.Goexit(); return false }
	reflector.RunWithContext(ctx)
}

// Any reports whether the API server has objects that match the selection.
func (i *Informer) Any(ctx context.Context) (bool, error) {
	found, err := i.source.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return false, err
	}
	list, ok := found.(*unstructured.UnstructuredList)
	return ok && len(list.Items) > 0, nil
}

// Name implements cache.DoneChecker.
func (i *Informer) Name() string { return i.resource.String() }

// Done implements cache.DoneChecker.
func (i *Informer) Done() <-chan struct{} { return i.synced }

// HasSynced reports whether the objects have been listed once.
func (i *Informer) HasSynced() bool { return cache.IsDone(i) }

// KnownEmpty marks the informer as synced without objects. It is called after Any has returned false. It has no effect
// if objects have been listed before.
func (i *Informer) KnownEmpty() { i.once.Do(func() { close(i.synced) }) }

// OnEvent calls f for each existing object, and then for each change, until remove is called.
func (i *Informer) OnEvent(f EventFunc) (remove func()) {
	i.delivering.Lock()
	defer i.delivering.Unlock()
	entry := &f
	i.handlers = append(i.handlers, entry)
	for _, object := range i.All() {
		f(nil, object, false)
	}
	return func() {
		i.delivering.Lock()
		defer i.delivering.Unlock()
		for n, handler := range i.handlers {
			if handler == entry {
				i.handlers = append(i.handlers[:n:n], i.handlers[n+1:]...)
				return
			}
		}
	}
}

// Resync calls the handlers for each object, as for an update without a change.
func (i *Informer) Resync() {
	i.delivering.Lock()
	defer i.delivering.Unlock()
	for _, object := range i.All() {
		i.callHandlers(object, object, false)
	}
}

// Get returns the object with the given namespace and name, or nil if it does not exist.
func (i *Informer) Get(namespace, name string) *unstructured.Unstructured {
	key := name
	if namespace != "" {
		key = namespace + "/" + name
	}
	found, _, _ := i.indexer.GetByKey(key)
	if kept, ok := found.(*item); ok {
		return kept.useObject(i.round.Load())
	}
	return nil
}

// By returns the objects that have the given value in an index.
func (i *Informer) By(index, value string) []*unstructured.Unstructured {
	objects, err := i.indexer.ByIndex(index, value)
	if err != nil {
		return nil
	}
	return objectsOf(objects)
}

// In returns all objects in a namespace.
func (i *Informer) In(namespace string) []*unstructured.Unstructured {
	if i.namespace != "" {
		return i.All()
	}
	return i.By(cache.NamespaceIndex, namespace)
}

// HasIn reports whether there are objects in a namespace.
func (i *Informer) HasIn(namespace string) bool {
	if i.namespace != "" {
		return i.Len() > 0
	}
	keys, err := i.indexer.IndexKeys(cache.NamespaceIndex, namespace)
	return err == nil && len(keys) > 0
}

// All returns the objects of all namespaces.
func (i *Informer) All() []*unstructured.Unstructured { return objectsOf(i.indexer.List()) }

// Len returns the number of objects.
func (i *Informer) Len() int { return len(i.indexer.ListKeys()) }

// Pack packs the objects that have not been used since the call before the previous one. It must be called
// periodically.
func (i *Informer) Pack() {
	round := i.round.Add(1)
	for _, kept := range i.indexer.List() {
		if kept, ok := kept.(*item); ok && round-kept.used.Load() > 1 {
			kept.packObject(i.strings, i.private)
		}
	}
}

// Put stores an object as if the watch had delivered it. It is for tests.
func (i *Informer) Put(object *unstructured.Unstructured) error { return (*store)(i).Add(object) }

// Drop removes an object as if the watch had delivered its deletion. It is for tests.
func (i *Informer) Drop(object *unstructured.Unstructured) error { return (*store)(i).Delete(object) }

var _ cache.DoneChecker = (*Informer)(nil)
