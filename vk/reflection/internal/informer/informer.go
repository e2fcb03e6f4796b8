// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package informer caches selections of unstructured objects, without what nobody here reads.
package informer

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/vk/reflection/internal/breaker"
)

// listTimeout is the deadline of one list; a watch ends by itself, and a dead connection is noticed by its pings.
const listTimeout = time.Minute

// Selection says which objects an informer holds.
type Selection struct {
	Namespace, Labels, Fields string
	// NoSpec: of each object what is said about it, not what it should be.
	NoSpec bool
}

// New returns an informer of unstructured objects without their managedFields, which nobody here reads.
// With a breaker, it waits while the provider is unreachable, and goes on at once when it is back.
func New(client dynamic.Interface, resource schema.GroupVersionResource, s Selection, resync time.Duration, b *breaker.Breaker, indexers cache.Indexers) (cache.SharedIndexInformer, error) {
	watcher := ListWatch(client, resource, s, b)
	all := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	for name, index := range indexers {
		all[name] = index
	}
	made := cache.NewSharedIndexInformerWithOptions(cache.ToListWatcherWithWatchListSemantics(watcher, client), &unstructured.Unstructured{},
		cache.SharedIndexInformerOptions{ResyncPeriod: resync, Indexers: all, ObjectDescription: resource.String()})
	transform := DropManagedFields
	if s.NoSpec {
		transform = dropSpec
	}
	if err := made.SetTransform(transform); err != nil {
		return nil, fmt.Errorf("preparing the informer of %s, %w", resource.Resource, err)
	}
	return made, nil
}

// ListWatch lists and watches a selection, with a breaker only while the provider can be reached.
func ListWatch(client dynamic.Interface, resource schema.GroupVersionResource, s Selection, b *breaker.Breaker) *cache.ListWatch {
	source := client.Resource(resource).Namespace(s.Namespace)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector, o.FieldSelector = s.Labels, s.Fields
			return breaker.Do(ctx, b, func() (runtime.Object, error) {
				ctx, cancel := context.WithTimeout(ctx, listTimeout)
				defer cancel()
				return source.List(ctx, o)
			})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector, o.FieldSelector = s.Labels, s.Fields
			return breaker.Do(ctx, b, func() (watch.Interface, error) { return source.Watch(ctx, o) })
		},
	}
}

func dropSpec(object any) (any, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		delete(u.Object, "spec")
	}
	return DropManagedFields(object)
}

// DropManagedFields is a transform of an informer.
func DropManagedFields(object any) (any, error) {
	if u, ok := object.(*unstructured.Unstructured); ok {
		if metadata, ok := u.Object["metadata"].(map[string]any); ok {
			delete(metadata, "managedFields")
		}
	}
	return object, nil
}

// EventFunc takes an event: the state before (nil for a new object), and the present or last known one.
type EventFunc func(before, object *unstructured.Unstructured, deleted bool)

// OnEvent calls f for each event.
func OnEvent(informer cache.SharedIndexInformer, f EventFunc) (cache.ResourceEventHandlerRegistration, error) {
	pass := func(old, object any, deleted bool) {
		if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = tombstone.Obj
		}
		before, _ := old.(*unstructured.Unstructured)
		if u, ok := object.(*unstructured.Unstructured); ok {
			f(before, u, deleted)
		}
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { pass(nil, o, false) },
		UpdateFunc: func(old, o any) { pass(old, o, false) },
		DeleteFunc: func(o any) { pass(nil, o, true) },
	})
	if err != nil {
		return nil, fmt.Errorf("adding an event handler, %w", err)
	}
	return registration, nil
}

// Get returns what an informer holds, or nil.
func Get(informer cache.SharedIndexInformer, namespace, name string) *unstructured.Unstructured {
	object, _, err := informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil {
		return nil
	}
	u, _ := object.(*unstructured.Unstructured)
	return u
}

// ByIndex returns the objects under a value of an index.
func ByIndex(informer cache.SharedIndexInformer, index, value string) []*unstructured.Unstructured {
	objects, err := informer.GetIndexer().ByIndex(index, value)
	if err != nil {
		return nil
	}
	found := make([]*unstructured.Unstructured, 0, len(objects))
	for _, object := range objects {
		if u, ok := object.(*unstructured.Unstructured); ok {
			found = append(found, u)
		}
	}
	return found
}
