// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
)

// CacheOptions restricts the Leases in the manager's cache to the heartbeats of consumers.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&coordinationv1.Lease{}: {Field: fields.OneTermEqualSelector("metadata.name", wire.HeartbeatLease)},
	}
}

// Register adds the controller to mgr. ctx must end with the manager.
func (c *Controller) Register(ctx context.Context, mgr manager.Manager) error {
	c.probes.setLifetime(ctx)
	c.fabrics.setLifetime(ctx)
	byLabel := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return requestFor(object.GetLabels()[wire.RemoteClusterIDLabel])
	})
	byID := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		switch object := object.(type) {
		case *core.ForeignCluster:
			return requestFor(string(object.Spec.ClusterID))
		case *offloading.VirtualNode:
			return requestFor(string(object.Spec.ClusterID))
		}
		return nil
	})
	tenants := predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetLabels()[wire.TenantNamespaceLabel] == "true" })
	connections, err := c.watchNetworks(mgr, connectionReports(), byLabel)
	if err != nil {
		return err
	}
	peerNetworks, err := c.watchNetworks(mgr, peerNetworkReports(), handler.EnqueueRequestsFromMapFunc(c.requestForTenant))
	if err != nil {
		return err
	}
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(c.options.Workers)).
		Watches(&core.ForeignCluster{}, byID).
		Watches(&corev1.Namespace{}, byLabel, builder.WithPredicates(tenants)).
		Watches(&offloading.VirtualNode{}, byID, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, byLabel).
		Watches(&offloading.NamespaceMap{}, byLabel, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&coordinationv1.Lease{}, handler.EnqueueRequestsFromMapFunc(c.requestForTenant)).
		WatchesRawSource(connections).
		WatchesRawSource(peerNetworks).
		WatchesRawSource(source.Channel(c.changed, byID)).
		Complete(report.Failures(c, c.options.Failed))
}

func requestFor(id string) []reconcile.Request {
	if id == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: id}}}
}

// requestForTenant returns a request for the cluster whose tenant namespace contains the object.
func (c *Controller) requestForTenant(ctx context.Context, object client.Object) []reconcile.Request {
	namespace := &corev1.Namespace{}
	if err := c.client.Get(ctx, types.NamespacedName{Name: object.GetNamespace()}, namespace); err != nil || namespace.Labels[wire.TenantNamespaceLabel] != "true" {
		return nil
	}
	return requestFor(namespace.Labels[wire.RemoteClusterIDLabel])
}
