// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package objectquota limits, on the provider, the storage, node ports, load balancers and object counts of each
// consumer according to its Quotas.
//
// The API server enforces the limits with a ResourceQuota in each remote namespace, even while no controller manager
// runs. A Quota applies to all namespaces of a consumer together: each namespace may have its current usage and the
// amount that the others leave. The controller updates the ResourceQuotas every few seconds. In between, namespaces that
// use the same remaining amount at the same time can exceed the Quota together. No namespace can exceed it alone, and
// none gets more afterwards. The objects have no creator, so the Quotas of a consumer's users are added up.
package objectquota

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/controllers/quota"
)

// refreshInterval is how long a namespace may use an amount that another namespace has used in the meantime. A shorter
// interval costs more reads, one for each namespace.
const refreshInterval = 5 * time.Second

// Options are the settings of the controller.
type Options struct {
	// Off limits nothing, and removes the ResourceQuotas.
	Off bool
	// Failed is called with the errors of reconciliations, unless it is nil.
	Failed func(error)
}

// Controller keeps the ResourceQuotas.
type Controller struct {
	client client.Client
	// live is not cached, because recent usage counts, and the cache contains no ResourceQuota of this name.
	live    client.Reader
	options Options
}

// NewController returns a controller that works through c; live must not be cached.
func NewController(c client.Client, live client.Reader, options Options) *Controller {
	return &Controller{client: c, live: live, options: options}
}

// Name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "objectquota" }

// Reconcile brings the ResourceQuotas of one consumer, whose cluster ID is the name in the request, in line with its Quotas.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	limits, err := c.quotaLimits(ctx, request.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	namespaces := &corev1.NamespaceList{}
	if err := c.client.List(ctx, namespaces, client.MatchingLabels{wire.RemoteClusterIDLabel: request.Name}); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the namespaces of consumer %s, %w", request.Name, err)
	}
	present := map[string]*corev1.ResourceQuota{}
	rest := limits.DeepCopy()
	for i := range namespaces.Items {
		namespace := &namespaces.Items[i]
		if !isRemote(namespace) {
			continue
		}
		found := &corev1.ResourceQuota{}
		err := c.live.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: wire.ConsumerQuota}, found)
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("getting ResourceQuota %s/%s, %w", namespace.Name, wire.ConsumerQuota, err)
		}
		present[namespace.Name] = found
		for name, left := range rest {
			left.Sub(found.Status.Used[name])
			rest[name] = left
		}
	}
	for namespace, found := range present {
		if err := c.ensureResourceQuota(ctx, namespace, found, withRest(found.Status.Used, rest)); err != nil {
			return reconcile.Result{}, err
		}
	}
	if len(limits) == 0 || len(present) == 0 {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: refreshInterval}, nil
}

// withRest returns the limits of a namespace: its usage and the rest of the Quota.
func withRest(used, rest corev1.ResourceList) corev1.ResourceList {
	hard := corev1.ResourceList{}
	for name, left := range rest {
		amount := used[name].DeepCopy()
		if left.Sign() > 0 {
			amount.Add(left)
		}
		hard[name] = amount
	}
	return hard
}

// quotaLimits returns the limits of a consumer's Quotas on resources other than those of pods, or nil if there are none.
func (c *Controller) quotaLimits(ctx context.Context, consumer string) (corev1.ResourceList, error) {
	if c.options.Off {
		return nil, nil
	}
	quotas, err := quota.QuotasOf(ctx, c.client, consumer)
	if err != nil {
		return nil, err
	}
	limits := corev1.ResourceList{}
	for i := range quotas {
		for name, limit := range quotas[i].Spec.Resources {
			if isCounted(name) {
				sum := limits[name]
				sum.Add(limit)
				limits[name] = sum
			}
		}
	}
	return limits, nil
}

// isCounted reports whether a ResourceQuota counts a resource that no pod has.
func isCounted(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceRequestsStorage, corev1.ResourcePersistentVolumeClaims, corev1.ResourceServices, corev1.ResourceServicesNodePorts,
		corev1.ResourceServicesLoadBalancers, corev1.ResourceConfigMaps, corev1.ResourceSecrets:
		return true
	}
	return strings.HasPrefix(string(name), "count/") || strings.Contains(string(name), ".storageclass.storage.k8s.io/")
}

// ensureResourceQuota writes the ResourceQuota of a namespace if it differs from found. A new ResourceQuota starts without any usage.
func (c *Controller) ensureResourceQuota(ctx context.Context, namespace string, found *corev1.ResourceQuota, hard corev1.ResourceList) error {
	exists := found.UID != ""
	switch {
	case !exists && len(hard) == 0, exists && equality.Semantic.DeepEqual(found.Spec.Hard, hard):
		return nil
	case !exists:
		created := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: wire.ConsumerQuota}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
		if err := c.client.Create(ctx, created); err != nil && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return fmt.Errorf("creating ResourceQuota %s/%s, %w", namespace, wire.ConsumerQuota, err)
		}
		return nil
	case len(hard) == 0:
		if err := c.client.Delete(ctx, found); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting ResourceQuota %s/%s, %w", namespace, wire.ConsumerQuota, err)
		}
		return nil
	}
	desired := found.DeepCopy()
	desired.Spec.Hard = hard
	if err := c.client.Patch(ctx, desired, client.MergeFromWithOptions(found, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("updating ResourceQuota %s/%s, %w", namespace, wire.ConsumerQuota, err)
	}
	return nil
}

// isRemote reports whether a namespace was created for a consumer.
func isRemote(object client.Object) bool {
	return object.GetLabels()[wire.RemoteClusterIDLabel] != "" && object.GetAnnotations()[wire.ManagedByNamespaceMapAnnotation] != "" && object.GetDeletionTimestamp() == nil
}

// Enforces returns the objects that the controller enforces, for metrics: the Quotas.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &offloading.QuotaList{}, func(client.Object) bool { return true }
}

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	ofConsumer := func(id string) []reconcile.Request {
		if id == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: id}}}
	}
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(1)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, namespace client.Object) []reconcile.Request {
			return ofConsumer(namespace.GetLabels()[wire.RemoteClusterIDLabel])
		})).
		Watches(&offloading.Quota{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, q client.Object) []reconcile.Request {
			namespace := &corev1.Namespace{}
			if c.client.Get(ctx, client.ObjectKey{Name: q.GetNamespace()}, namespace) != nil {
				// The Event of the namespace itself triggers the reconciliation.
				return nil
			}
			return ofConsumer(namespace.Labels[wire.RemoteClusterIDLabel])
		})).
		Complete(report.Failures(c, c.options.Failed))
}
