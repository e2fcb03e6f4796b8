// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowendpointslice

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/ownedfields"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
)

// CacheOptions says what the manager's cache holds for this controller: of the
// cluster's EndpointSlices those that it manages.
func CacheOptions() map[client.Object]cache.ByObject {
	return kind.CacheOptions(newSlice(), wire.ManagedByShadowEndpointSlice, trim)
}

// trim keeps of the managed fields our own.
func trim(obj any) (any, error) {
	if object, err := meta.Accessor(obj); err == nil {
		object.SetManagedFields(ownedfields.Only(object.GetManagedFields(), wire.ShadowEndpointSliceFieldManager))
	}
	return obj, nil
}

func (c *Controller) watch(mgr manager.Manager) error {
	toShadows := handler.EnqueueRequestsFromMapFunc(c.shadowsFrom)
	return kind.Controller(mgr, c.Name(), c.options.Workers).
		Watches(newSlice(), &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.Funcs{
			// Creations are our own, and at the start every ShadowEndpointSlice is looked at anyway.
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: workers.Changed,
		})).
		Watches(&core.ForeignCluster{}, toShadows, builder.WithPredicates(predicate.Funcs{UpdateFunc: reachabilityChanged})).
		Complete(report.Failures(c, c.options.Failed))
}

func reachabilityChanged(e event.UpdateEvent) bool {
	return observe(e.ObjectOld.(*core.ForeignCluster)) != observe(e.ObjectNew.(*core.ForeignCluster))
}

// shadowsFrom returns the slices whose endpoints live in the given cluster.
func (c *Controller) shadowsFrom(ctx context.Context, obj client.Object) []reconcile.Request {
	id := string(obj.(*core.ForeignCluster).Spec.ClusterID)
	shadows := kind.NewList()
	if err := c.client.List(ctx, shadows, client.MatchingLabels{wire.OriginLabel: id}); err != nil {
		log.FromContext(ctx).Error(err, "listing the ShadowEndpointSlices of a cluster", "cluster", id)
		return nil
	}
	requests := make([]reconcile.Request, 0, len(shadows.Items))
	for i := range shadows.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&shadows.Items[i])})
	}
	return requests
}
