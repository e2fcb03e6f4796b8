// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	corev1beta1 "github.com/refract-project/refract/api/core/v1beta1"
	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// observations contains the latest versions of the observed objects. It contains nil for an object that does not exist.
// It may be read at any time. The objects are shared, so callers must not modify them.
type observations struct {
	lastVirtualNode    atomic.Pointer[offloadingv1beta1.VirtualNode]
	lastForeignCluster atomic.Pointer[corev1beta1.ForeignCluster]
	lastNode           atomic.Pointer[corev1.Node]
}

func (o *observations) virtualNode() *offloadingv1beta1.VirtualNode { return o.lastVirtualNode.Load() }
func (o *observations) foreignCluster() *corev1beta1.ForeignCluster {
	return o.lastForeignCluster.Load()
}
func (o *observations) node() *corev1.Node { return o.lastNode.Load() }

// startWatches starts a watch for each of the three objects. It calls changed after every change. It does not wait for
// the first lists, because the API server may be down now and start later.
func (o *observations) startWatches(ctx context.Context, group *errgroup.Group, config *Config, changed func()) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, corev1beta1.AddToScheme, offloadingv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("registering types, %w", err)
		}
	}
	watches, err := cache.New(config.Local, cache.Options{
		Scheme:           scheme,
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}: {Field: fields.OneTermEqualSelector("metadata.name", config.Name)},
			&offloadingv1beta1.VirtualNode{}: {
				Namespaces: map[string]cache.Config{config.Namespace: {}},
				Field:      fields.OneTermEqualSelector("metadata.name", config.VirtualNode),
			},
			&corev1beta1.ForeignCluster{}: {Label: labels.SelectorFromSet(labels.Set{wire.RemoteClusterIDLabel: config.RemoteClusterID})},
		},
	})
	if err != nil {
		return fmt.Errorf("setting up the watches of node %s, %w", config.Name, err)
	}
	group.Go(func() error { return watches.Start(ctx) })
	group.Go(func() error { return watchObject(ctx, watches, config, &o.lastNode, changed) })
	group.Go(func() error { return watchObject(ctx, watches, config, &o.lastVirtualNode, changed) })
	if config.CheckNetwork {
		group.Go(func() error { return watchObject(ctx, watches, config, &o.lastForeignCluster, changed) })
	}
	return nil
}

// object is a constraint for pointers to T that implement client.Object.
type object[T any] interface {
	*T
	client.Object
}

// maxWatchRetryDelay limits the delay before another attempt to start a watch. With a longer delay, a CRD that is
// installed later takes effect later.
const maxWatchRetryDelay = time.Minute

// watchObject stores the latest version of an object in last until ctx ends. If the API server does not serve the kind,
// watchObject retries, because the CRD may be installed later.
func watchObject[T any, P object[T]](ctx context.Context, watches cache.Cache, config *Config, last *atomic.Pointer[T], changed func()) error {
	wait := minRetryDelay
	for {
		informer, err := watches.GetInformer(ctx, P(new(T)), cache.BlockUntilSynced(false))
		if err == nil {
			_, err = informer.AddEventHandler(recordLatest[T, P](last, changed))
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return nil
		case apimeta.IsNoMatchError(err):
			log.FromContext(ctx).Info("The API server does not serve a kind yet, retrying: install the CRDs", "in", wait.String(), "err", err)
		default:
			log.FromContext(ctx).Error(err, "A watch cannot be started, retrying", "in", wait.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-config.Clock.After(wait):
			wait = min(2*wait, maxWatchRetryDelay)
		}
	}
}

// recordLatest returns a handler that stores the latest version of the only object of a watch.
func recordLatest[T any, P object[T]](last *atomic.Pointer[T], changed func()) toolscache.ResourceEventHandler {
	record := func(obj any) {
		if seen, ok := obj.(P); ok {
			last.Store((*T)(seen))
			changed()
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    record,
		UpdateFunc: func(_, obj any) { record(obj) },
		// The argument may be the object or a tombstone. In both cases the object was deleted.
		DeleteFunc: func(any) {
			last.Store(nil)
			changed()
		},
	}
}
