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
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/internal/dynamicclient"
)

// InformerConstructor is the type of cache.Options.NewInformer.
type InformerConstructor = func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// NewInformer returns the constructor for a cache of the cluster at config,
// with the given options: of these, the selectors are used. A kind that is
// narrowed to namespaces, and everything that is not unstructured, is read as
// usual.
func NewInformer(config *rest.Config, byObject map[client.Object]cache.ByObject) (InformerConstructor, error) {
	dynamicClient, err := dynamicclient.New(config, dynamicclient.Options{})
	if err != nil {
		return nil, fmt.Errorf("preparing the informers, %w", err)
	}
	sources := map[schema.GroupVersionKind]toolscache.ListerWatcher{}
	for object, options := range byObject {
		if u, ok := object.(*unstructured.Unstructured); ok && options.Namespaces == nil {
			sources[u.GroupVersionKind()] = source(dynamicClient, u.GroupVersionKind(), options)
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

// source lists and watches the objects of a kind.
func source(dynamicClient dynamic.Interface, kind schema.GroupVersionKind, options cache.ByObject) toolscache.ListerWatcher {
	resource := dynamicClient.Resource(resourceOf(kind))
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
			return resource.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			narrow(&o)
			return resource.Watch(ctx, o)
		},
	}, dynamicClient)
}

// resourceOf returns the resource with the plural name that is usual: no kind
// here has another, and to look it up costs more than one would think.
func resourceOf(kind schema.GroupVersionKind) schema.GroupVersionResource {
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	return plural
}
