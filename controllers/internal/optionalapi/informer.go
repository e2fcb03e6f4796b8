// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package optionalapi watches resources that a cluster may not serve, such as those of Liqo's network module.
//
// The cache of a manager fails, or logs an error every ten seconds, if it watches a resource whose CRD is not
// installed. The informers of this package retry with client-go's backoff instead (after one second at first, and up to
// a minute later). They log nothing while the API server does not serve the resource. A CRD can therefore be installed,
// removed and installed again while the process runs.
package optionalapi

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/refract-project/refract/internal/dynamicclient"
)

// Options are the options of an informer.
type Options struct {
	// Indexers are the indexers of the informer.
	Indexers cache.Indexers
	// Observe is called with the result of each request that lists or watches the resource. The result is a NotFound
	// error if the cluster does not serve the resource. Observe may be nil.
	Observe func(error)
}

// NewInformer returns an informer of the resource in the cluster that config describes. The objects are unstructured.
// The caller must run the informer.
func NewInformer(config *rest.Config, resource schema.GroupVersionResource, options Options) (cache.SharedIndexInformer, error) {
	client, err := dynamicclient.New(config, dynamicclient.Options{})
	if err != nil {
		return nil, fmt.Errorf("creating the client of %s, %w", resource.Resource, err)
	}
	if options.Observe == nil {
		options.Observe = func(error) {}
	}
	informer := cache.NewSharedIndexInformerWithOptions(listerWatcher(client, resource, options.Observe), &unstructured.Unstructured{},
		cache.SharedIndexInformerOptions{Indexers: options.Indexers, ObjectDescription: resource.String()})
	if err := informer.SetWatchErrorHandlerWithContext(handleWatchError); err != nil {
		return nil, fmt.Errorf("preparing the watch of %s, %w", resource.Resource, err)
	}
	return informer, nil
}

// listerWatcher lists and watches the resource, and reports the results of these requests.
func listerWatcher(client dynamic.Interface, resource schema.GroupVersionResource, observe func(error)) cache.ListerWatcher {
	objects := client.Resource(resource)
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := objects.List(ctx, o)
			observe(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := objects.Watch(ctx, o)
			observe(err)
			return w, err
		},
	}, client)
}

// handleWatchError handles errors of the watch. It does not log that the cluster does not serve the resource.
func handleWatchError(ctx context.Context, r *cache.Reflector, err error) {
	if !apierrors.IsNotFound(err) {
		cache.DefaultWatchErrorHandler(ctx, r, err)
	}
}
