// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
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

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/objectcounts"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/tenantlimits"
)

// CacheOptions restricts the manager's cache for this controller. Only the RoleBindings of peerings are cached. A
// NetworkPolicy with another owner is reduced to the fields that show which pods it isolates. A LimitRange with another
// owner is reduced to its name and version. Namespaces are cached completely, because other controllers read namespaces
// without our labels.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&rbacv1.RoleBinding{}:         {Label: ofPeerings()},
		&networkingv1.NetworkPolicy{}: {Transform: trimNetworkPolicy},
		&corev1.LimitRange{}:          {Transform: trimLimitRange},
		&corev1.ResourceQuota{}:       {Field: fields.OneTermEqualSelector("metadata.name", wire.ObjectCountsQuota)},
	}
}

// ofPeerings selects the RoleBindings that controllers have created for remote namespaces, and the RoleBindings that
// refractctl has created for tenant namespaces. Package tenantaccess reads the RoleBindings in tenant namespaces.
func ofPeerings() labels.Selector {
	requirement, err := labels.NewRequirement(managedByLabel, selection.In, []string{managedBy, wire.ManagedByRefractctl})
	if err != nil {
		panic(err) // this is a mistake in this package, which every test would detect
	}
	return labels.NewSelector().Add(*requirement)
}

// trimNetworkPolicy removes everything from other owners' NetworkPolicies except the fields that show which pods they
// isolate. Our own NetworkPolicies remain complete.
func trimNetworkPolicy(obj any) (any, error) {
	policy, ok := obj.(*networkingv1.NetworkPolicy)
	if !ok {
		return obj, nil
	}
	policy.ManagedFields = nil
	if !isEgressPolicy(policy) {
		policy.Labels, policy.Annotations, policy.Spec.Ingress, policy.Spec.Egress = nil, nil, nil, nil
	}
	return policy, nil
}

// isEgressPolicy reports whether this controller has written a NetworkPolicy. Earlier versions reserved only the first
// name, so a policy with one of the other names may have another owner. Such a policy is neither overwritten nor
// deleted.
func isEgressPolicy(policy client.Object) bool {
	name := policy.GetName()
	return name == wire.EgressNetworkPolicy || slices.Contains(wire.EgressPolicyNames(), name) &&
		(policy.GetLabels()[managedByLabel] == managedBy || policy.GetAnnotations()[wire.ManagedByNamespaceMapAnnotation] != "")
}

// trimLimitRange removes the limits from LimitRanges that are not our own.
func trimLimitRange(obj any) (any, error) {
	limits, ok := obj.(*corev1.LimitRange)
	if !ok {
		return obj, nil
	}
	limits.ManagedFields = nil
	if limits.Name != wire.TenantLimitRange {
		limits.Spec, limits.Labels, limits.Annotations = corev1.LimitRangeSpec{}, nil, nil
	}
	return limits, nil
}

func (c *Controller) watch(mgr manager.Manager) error {
	toMap := handler.EnqueueRequestsFromMapFunc(mapOf)
	marked := builder.WithPredicates(predicate.NewPredicateFuncs(func(obj client.Object) bool {
		return obj.GetAnnotations()[wire.ManagedByNamespaceMapAnnotation] != ""
	}))
	build := builder.ControllerManagedBy(mgr)
	for _, follow := range []func(func()){c.options.FollowOwnRanges, c.options.FollowRangesOfOthers} {
		if follow != nil {
			build = build.WatchesRawSource(c.enqueueAllAfter(follow))
		}
	}
	return build.
		Named(c.Name()).
		WithOptions(workers.Options(c.options.Workers)).
		For(&offloading.NamespaceMap{}, builder.WithPredicates(predicate.NewPredicateFuncs(isReplicated))).
		Watches(&corev1.Namespace{}, toMap, marked).
		Watches(&corev1.Namespace{}, handler.Funcs{DeleteFunc: c.forgetDeleted}).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(c.mapsIn), builder.WithPredicates(predicate.Or(predicate.LabelChangedPredicate{}, limitsChanged))).
		Watches(&rbacv1.RoleBinding{}, toMap, marked).
		Watches(&networkingv1.NetworkPolicy{}, handler.EnqueueRequestsFromMapFunc(c.mapOfNamespace), builder.WithPredicates(isolationChanged)).
		Watches(&corev1.LimitRange{}, toMap, marked).
		Watches(&corev1.ResourceQuota{}, toMap, marked, builder.WithPredicates(predicate.Funcs{UpdateFunc: countsChanged})).
		Complete(report.Failures(c, c.options.Failed))
}

// forgetDeleted removes the recorded state of a deleted namespace.
func (c *Controller) forgetDeleted(_ context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	c.forget(e.Object.GetName())
	c.counts.Forget(e.Object.GetName())
	c.granted.Drop(types.NamespacedName{Name: e.Object.GetName()})
	c.grants.forget(e.Object.GetName())
}

// enqueueAllAfter returns a source that reconciles all NamespaceMaps whenever the function that it passes to follow is
// called.
func (c *Controller) enqueueAllAfter(follow func(func())) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		follow(func() {
			list := &offloading.NamespaceMapList{}
			if err := c.client.List(ctx, list); err != nil {
				log.FromContext(ctx).Error(err, "Cannot list the NamespaceMaps")
				return
			}
			for i := range list.Items {
				if isReplicated(&list.Items[i]) {
					queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
				}
			}
		})
		return nil
	})
}

// limitsChanged selects updates that change the limits of a consumer.
var limitsChanged = predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false }, DeleteFunc: func(event.DeleteEvent) bool { return false },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return !maps.Equal(tenantlimits.Annotations(e.ObjectOld.GetAnnotations()), tenantlimits.Annotations(e.ObjectNew.GetAnnotations()))
	},
}

// countsChanged ignores updates that only change the number of existing objects, because such an update happens for
// every new object.
func countsChanged(e event.UpdateEvent) bool {
	return objectcounts.Changed(e.ObjectOld.(*corev1.ResourceQuota), e.ObjectNew.(*corev1.ResourceQuota))
}

// mapsIn returns requests for the NamespaceMaps of consumers in a namespace, because the labels of the namespace
// determine whether its maps are trusted. It includes deleted maps that still have RoleBindings.
func (c *Controller) mapsIn(ctx context.Context, namespace client.Object) (requests []reconcile.Request) {
	list := &offloading.NamespaceMapList{}
	bindings, err := c.bindingsOf(ctx, namespace.GetName())
	if err := errors.Join(err, c.client.List(ctx, list, client.InNamespace(namespace.GetName()))); err != nil {
		log.FromContext(ctx).Error(err, "Cannot list the NamespaceMaps of a namespace", "namespace", namespace.GetName())
		return nil
	}
	for i := range list.Items {
		if isReplicated(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	for i := range bindings {
		requests = append(requests, mapOf(ctx, &bindings[i])...)
	}
	return requests
}

// isolationChanged ignores updates to other owners' policies that do not change the spec.
var isolationChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, now := e.ObjectOld.(*networkingv1.NetworkPolicy), e.ObjectNew.(*networkingv1.NetworkPolicy)
	return isEgressPolicy(now) || !equality.Semantic.DeepEqual(before.Spec, now.Spec)
}}

// mapOfNamespace returns a request for the NamespaceMap that requested the namespace of an object.
func (c *Controller) mapOfNamespace(ctx context.Context, obj client.Object) []reconcile.Request {
	namespace := &corev1.Namespace{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: obj.GetNamespace()}, namespace); err != nil {
		return nil // the namespace is gone, or will be reconciled when it is in the cache
	}
	return mapOf(ctx, namespace)
}

// mapOf returns a request for the NamespaceMap that a namespace or RoleBinding was created for.
func mapOf(_ context.Context, obj client.Object) []reconcile.Request {
	mark := obj.GetAnnotations()[wire.ManagedByNamespaceMapAnnotation]
	namespace, name, ok := strings.Cut(mark, "/")
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}
