// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
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

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
)

// CacheOptions restricts the Nodes in the manager's cache to virtual nodes, and their status to the condition Ready,
// which package podstatus reads.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Node{}: {
			Label:     labels.SelectorFromSet(labels.Set{wire.TypeLabel: wire.VirtualNodeType}),
			Transform: trimNode,
		},
	}
}

func trimNode(obj any) (any, error) {
	if node, ok := obj.(*corev1.Node); ok {
		conditions := slices.DeleteFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool { return condition.Type != corev1.NodeReady })
		node.ManagedFields, node.Spec, node.Status = nil, corev1.NodeSpec{}, corev1.NodeStatus{Conditions: conditions}
	}
	return obj, nil
}

func (c *Controller) setUpWatches(mgr manager.Manager) error {
	toAll := handler.EnqueueRequestsFromMapFunc(c.allOffloadings)
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(c.options.Workers)).
		For(&offloading.NamespaceOffloading{}).
		Watches(&offloading.NamespaceMap{}, c.mapHandler()).
		Watches(&offloading.VirtualNode{}, toAll, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, toAll, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&core.ForeignCluster{}, toAll, builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		Watches(&rbacv1.RoleBinding{}, handler.EnqueueRequestsFromMapFunc(c.requestForBinding)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(inNamespace), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Complete(report.Failures(c, c.options.Failed))
}

func inNamespace(_ context.Context, namespace client.Object) []reconcile.Request {
	return []reconcile.Request{requestFor(namespace.GetName())}
}

// requestForBinding returns a request for the NamespaceOffloading in the namespace of the RoleBinding.
func (c *Controller) requestForBinding(_ context.Context, binding client.Object) []reconcile.Request {
	if binding.GetName() != c.options.ExtendedClusterRole {
		return nil
	}
	return []reconcile.Request{requestFor(binding.GetNamespace())}
}

func requestFor(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: offloading.NamespaceOffloadingName}}
}

// allOffloadings returns requests for every NamespaceOffloading, because any of them may select a node.
func (c *Controller) allOffloadings(ctx context.Context, _ client.Object) []reconcile.Request {
	return c.listOffloadings(ctx, func(*offloading.NamespaceOffloading) bool { return true })
}

// listOffloadings returns requests for the matching NamespaceOffloadings.
func (c *Controller) listOffloadings(ctx context.Context, match func(*offloading.NamespaceOffloading) bool) []reconcile.Request {
	list := &offloading.NamespaceOffloadingList{}
	if err := c.client.List(ctx, list); err != nil {
		log.FromContext(ctx).Error(err, "Cannot list NamespaceOffloadings")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		if match(&list.Items[i]) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}

// mapHandler reconciles all namespaces after a NamespaceMap was created or deleted, or its labels have changed. After
// other changes, it reconciles only some: the namespaces whose entries have changed, the namespaces that share a remote
// namespace with them, and the namespaces that may wait for a name.
func (c *Controller) mapHandler() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	everybody := func(ctx context.Context, obj client.Object, q queue) {
		for _, request := range c.allOffloadings(ctx, obj) {
			q.Add(request)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			everybody(ctx, e.Object, q)
			for namespace := range e.Object.(*offloading.NamespaceMap).Spec.DesiredMapping {
				// The request contains the name of the namespace, which may have no NamespaceOffloading.
				q.Add(requestFor(namespace))
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { everybody(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			if !equality.Semantic.DeepEqual(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) {
				everybody(ctx, e.ObjectNew, q)
				return
			}
			for _, request := range c.affectedNamespaces(ctx, e.ObjectOld.(*offloading.NamespaceMap), e.ObjectNew.(*offloading.NamespaceMap)) {
				q.Add(request)
			}
		},
	}
}

// affectedNamespaces returns requests for the namespaces that a change to a NamespaceMap affects.
func (c *Controller) affectedNamespaces(ctx context.Context, before, now *offloading.NamespaceMap) (requests []reconcile.Request) {
	sharing, free := namespacesByRemote(now), map[string]bool{}
	for namespace := range changedEntries(before, now) {
		requests = append(requests, requestFor(namespace))
		for _, remoteNamespace := range append(remoteNamespacesOf(before, namespace), remoteNamespacesOf(now, namespace)...) {
			for _, other := range sharing[remoteNamespace] {
				requests = append(requests, requestFor(other))
			}
			if len(sharing[remoteNamespace]) == 0 {
				free[remoteNamespace] = true
			}
		}
	}
	if len(free) == 0 {
		return requests
	}
	return append(requests, c.listOffloadings(ctx, func(nso *offloading.NamespaceOffloading) bool { return free[c.remoteNamespaceName(nso)] })...)
}

func changedEntries(before, now *offloading.NamespaceMap) map[string]bool {
	changed := map[string]bool{}
	addChangedKeys(changed, before.Spec.DesiredMapping, now.Spec.DesiredMapping)
	addChangedKeys(changed, before.Status.CurrentMapping, now.Status.CurrentMapping)
	return changed
}

// addChangedKeys adds the keys whose values differ between a and b to changed.
func addChangedKeys[V comparable](changed map[string]bool, a, b map[string]V) {
	for key, value := range a {
		if other, ok := b[key]; !ok || other != value {
			changed[key] = true
		}
	}
	for key := range b {
		if _, ok := a[key]; !ok {
			changed[key] = true
		}
	}
}
