// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowendpointslice

import (
	"context"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/networks"
	"github.com/refract-project/refract/controllers/internal/onepass"
	"github.com/refract-project/refract/controllers/internal/ownedfields"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/shadows"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/dynamicclient"
)

// CacheOptions restricts the EndpointSlices in the manager's cache to those that the controller manages.
func CacheOptions() map[client.Object]cache.ByObject {
	maxBytes := func(*unstructured.Unstructured) int { return shadows.MaxKeptBytes }
	return kind.CacheOptions(maxBytes, newSlice(), wire.ManagedByShadowEndpointSlice, trimSlice)
}

// contentFields are the fields of an EndpointSlice whose size is chosen by its consumer.
var contentFields = []string{"endpoints", "ports"}

// Decoding returns the options for decoding the objects that this controller reads.
func Decoding() onepass.Decoding {
	decoding := kind.Decoding()
	decoding[newSlice().GroupVersionKind()] = dynamicclient.Options{Text: contentFields}
	return decoding
}

// trimSlice removes large content and the managed fields of other owners from an EndpointSlice in the cache.
func trimSlice(obj any) (any, error) {
	if slice, ok := obj.(*unstructured.Unstructured); ok {
		slice.SetManagedFields(ownedfields.Only(slice.GetManagedFields(), wire.ShadowEndpointSliceFieldManager))
		shadows.Compact(slice, shadows.MaxKeptBytes, contentFields...)
	}
	return obj, nil
}

func (c *Controller) setUpWatches(mgr manager.Manager) error {
	toShadows := handler.EnqueueRequestsFromMapFunc(c.shadowsFrom)
	slices := kind.Controller(mgr, c.Name(), c.options.Workers, c.gone.Predicate()).
		Watches(newSlice(), &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.Funcs{
			// All ShadowEndpointSlices are reconciled at the start anyway. Therefore an EndpointSlice in the initial
			// list is reconciled only if its ShadowEndpointSlice may be gone. EndpointSlices that appear later are
			// reconciled, because other clients may have changed them while the watch was interrupted.
			CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList || kind.OwnerOf(e.Object) != nil },
			UpdateFunc: workers.Changed,
		})).
		Watches(&core.ForeignCluster{}, toShadows, builder.WithPredicates(predicate.Funcs{UpdateFunc: reachabilityChanged}))
	if c.options.AddressMapper != nil {
		slices = slices.WatchesRawSource(source.Func(c.followNetworks))
	}
	if c.options.FollowOwnRanges != nil {
		slices = slices.WatchesRawSource(source.Func(c.followOwnRanges))
	}
	slices = slices.Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(c.shadowsIn), builder.WithPredicates(predicate.Funcs{
		// A namespace always exists before its ShadowEndpointSlices, so its creation needs no reconciliation.
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: tenancy.RulesChanged,
	}))
	return slices.Complete(report.Failures(c, c.options.Failed))
}

// shadowsIn returns requests for the ShadowEndpointSlices in a namespace, and for the ShadowEndpointSlices with
// direct connections to the cluster of a tenant namespace.
func (c *Controller) shadowsIn(ctx context.Context, namespace client.Object) []reconcile.Request {
	isIn := func(shadow *unstructured.Unstructured) bool { return shadow.GetNamespace() == namespace.GetName() }
	if cluster := namespace.GetLabels()[wire.RemoteClusterIDLabel]; cluster != "" && namespace.GetAnnotations()[wire.ManagedByNamespaceMapAnnotation] == "" {
		isIn = concernsCluster(cluster)
	}
	return c.requestsFor(ctx, isIn)
}

// followOwnRanges reconciles all ShadowEndpointSlices when the ranges of this cluster have changed.
func (c *Controller) followOwnRanges(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	c.options.FollowOwnRanges(func() {
		for _, request := range c.requestsFor(ctx, concernsCluster(networks.Everybody)) {
			queue.Add(request)
		}
	})
	return nil
}

// followNetworks reconciles the ShadowEndpointSlices with addresses in a cluster when the network of this cluster has
// changed.
func (c *Controller) followNetworks(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	c.options.AddressMapper.Follow(func(cluster string) {
		for _, request := range c.requestsFor(ctx, concernsCluster(cluster)) {
			queue.Add(request)
		}
	})
	return nil
}

// concernsCluster selects the ShadowEndpointSlices with addresses in a cluster: the cluster's own
// ShadowEndpointSlices, and ShadowEndpointSlices of other consumers with direct connections to the cluster.
func concernsCluster(cluster string) func(shadow *unstructured.Unstructured) bool {
	return func(shadow *unstructured.Unstructured) bool {
		return cluster == networks.Everybody || shadows.LacksMetadata(shadow) || shadow.GetLabels()[wire.OriginLabel] == cluster ||
			strings.Contains(shadow.GetAnnotations()[wire.DirectConnectionsDataAnnotation], strconv.Quote(cluster))
	}
}

func reachabilityChanged(e event.UpdateEvent) bool {
	return observeState(e.ObjectOld.(*core.ForeignCluster)) != observeState(e.ObjectNew.(*core.ForeignCluster))
}

// shadowsFrom returns requests for the ShadowEndpointSlices with endpoints in the given cluster.
func (c *Controller) shadowsFrom(ctx context.Context, obj client.Object) []reconcile.Request {
	id := string(obj.(*core.ForeignCluster).Spec.ClusterID)
	return c.requestsFor(ctx, func(*unstructured.Unstructured) bool { return true }, client.MatchingLabels{wire.OriginLabel: id})
}

// requestsFor returns requests for the ShadowEndpointSlices that meant selects.
func (c *Controller) requestsFor(ctx context.Context, meant func(*unstructured.Unstructured) bool, options ...client.ListOption) []reconcile.Request {
	shadows := kind.NewList()
	if err := c.client.List(ctx, shadows, options...); err != nil {
		log.FromContext(ctx).Error(err, "Cannot list the ShadowEndpointSlices of a cluster")
		return nil
	}
	var requests []reconcile.Request
	for i := range shadows.Items {
		if meant(&shadows.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&shadows.Items[i])})
		}
	}
	return requests
}
