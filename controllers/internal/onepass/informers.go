// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package onepass

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/internal/dynamicclient"
)

// InformerConstructor is the type of cache.Options.NewInformer.
type InformerConstructor = func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// Decoding contains the options for each kind of which only a part is decoded.
type Decoding map[schema.GroupVersionKind]dynamicclient.Options

// client returns a client that decodes objects of the kind with its options.
func (d Decoding) client(config *rest.Config, kind schema.GroupVersionKind) (dynamic.NamespaceableResourceInterface, error) {
	dynamicClient, err := dynamicclient.New(config, d[kind])
	if err != nil {
		return nil, fmt.Errorf("preparing to read objects of kind %s, %w", kind.Kind, err)
	}
	return dynamicClient.Resource(resourceOf(kind)), nil
}

// NewInformer returns the constructor of informers for the cache of the cluster at config. The informers use the
// selectors in byObject. Typed objects, kinds that are restricted to namespaces, and kinds that are not in byObject are
// listed and watched by controller-runtime's own client.
func NewInformer(config *rest.Config, byObject map[client.Object]cache.ByObject, decoding Decoding) (InformerConstructor, error) {
	sources := map[schema.GroupVersionKind]toolscache.ListerWatcher{}
	for object, options := range byObject {
		if u, ok := object.(*unstructured.Unstructured); ok && options.Namespaces == nil {
			resource, err := decoding.client(config, u.GroupVersionKind())
			if err != nil {
				return nil, err
			}
			sources[u.GroupVersionKind()] = source(resource, options)
		}
	}
	return func(usual toolscache.ListerWatcher, object runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		_, isUnstructured := object.(*unstructured.Unstructured)
		if ours, ok := sources[object.GetObjectKind().GroupVersionKind()]; ok && isUnstructured {
			usual = ours
		}
		return toolscache.NewSharedIndexInformer(usual, object, resync, indexers)
	}, nil
}

// pageSize is the number of objects per request to an API server that cannot stream a list. The whole response is held
// in memory, and a single object in it may be larger than 1 MiB.
const pageSize = 25

// source returns a ListerWatcher for the objects of a kind. It reads lists in pages from etcd, because API servers
// ignore the page size when they read from their watch cache.
func source(resource dynamic.ResourceInterface, options cache.ByObject) toolscache.ListerWatcher {
	narrow := func(o *metav1.ListOptions) {
		if options.Label != nil {
			o.LabelSelector = options.Label.String()
		}
		if options.Field != nil {
			o.FieldSelector = options.Field.String()
		}
	}
	return toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			narrow(&o)
			o.ResourceVersion, o.ResourceVersionMatch, o.Limit = "", "", pageSize
			pages := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return listPage(ctx, resource, o, options.Transform)
			})
			all, _, err := pages.ListWithAlloc(ctx, o)
			return all, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			narrow(&o)
			return resource.Watch(ctx, o)
		},
	}, resource)
}

// listPage returns one page of objects. It transforms them at once, so that only the transformed objects are in memory
// while the next pages are read.
func listPage(ctx context.Context, resource dynamic.ResourceInterface, o metav1.ListOptions, transform toolscache.TransformFunc) (runtime.Object, error) {
	page, err := resource.List(ctx, o)
	if err != nil || transform == nil {
		return page, err
	}
	for i := range page.Items {
		kept, err := transform(&page.Items[i])
		if err != nil {
			return nil, err
		}
		page.Items[i] = *kept.(*unstructured.Unstructured)
	}
	return page, nil
}

// resourceOf returns the resource of a kind. All kinds that are used here have the usual plural name, so that no
// discovery is needed.
func resourceOf(kind schema.GroupVersionKind) schema.GroupVersionResource {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural
}
