// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package objectquota runs on a provider. It limits the storage, node ports, load balancers and object counts of each
// consumer according to the consumer's Quotas. Defaults apply to resources that are not in a Quota.
//
// The API server enforces the limits with a ResourceQuota in each remote namespace, even while no controller manager
// runs. A limit applies to all namespaces of a consumer together: each namespace may use its current usage plus the
// amount that no namespace uses. The controller updates all ResourceQuotas when the usage in a namespace changes.
// Before the update, several namespaces may use the same remaining amount, and together exceed a limit. However, no
// single namespace can exceed the limit, and after the update no namespace gets more. Objects do not record their
// creator, so the Quotas of all users of a consumer are added up.
package objectquota

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/brake"
	"github.com/refract-project/refract/controllers/internal/ledger"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
)

const (
	// usageDelay is the delay between a change in the usage of one namespace and the update of the other namespaces,
	// which includes any changes in between. With a shorter delay, a consumer that creates and deletes objects causes
	// more writes. With a longer delay, namespaces can exceed a limit together for longer.
	usageDelay = time.Second
	// parallel is the number of consumers that are reconciled at once, so that a consumer with many namespaces does not delay the others.
	parallel = 4

	fieldOwner = client.FieldOwner(wire.ObjectQuotaFieldManager)
)

// Options are the settings of the controller.
type Options struct {
	// Off makes the controller ignore Quotas.
	Off bool
	// Defaults are the limits of resources that are in none of a consumer's Quotas. They also apply to consumers
	// without a Quota.
	Defaults corev1.ResourceList
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller maintains the ResourceQuotas of consumers.
type Controller struct {
	client client.Client
	live   client.Reader
	// quotas reads only the ResourceQuotas of this controller. Register sets it.
	quotas  client.Reader
	options Options
}

// NewController returns a controller that uses the client c. live must not be cached. c is a brake.RestoringClient,
// which limits how often a ResourceQuota is restored while another client keeps changing it.
func NewController(c client.Client, live client.Reader, options Options) *Controller {
	return &Controller{client: c, live: live, options: options}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "objectquota" }

// Reconcile updates the ResourceQuotas of a consumer according to its Quotas. The name in the request is the consumer's
// cluster ID.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	limits, err := c.listLimits(ctx, request.Name)
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
		err := c.quotas.Get(ctx, client.ObjectKey{Namespace: namespace.Name, Name: wire.ConsumerQuota}, found)
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("getting ResourceQuota %s/%s, %w", namespace.Name, wire.ConsumerQuota, err)
		}
		present[namespace.Name] = found
		for name, left := range rest {
			left.Sub(found.Status.Used[name])
			rest[name] = left
		}
	}
	var problems []error
	for _, namespace := range slices.Sorted(maps.Keys(present)) {
		found := present[namespace]
		problems = append(problems, c.ensureResourceQuota(ctx, namespace, found, withRest(found.Status.Used, rest)))
	}
	wait, err := brake.Wait(0, errors.Join(problems...))
	return reconcile.Result{RequeueAfter: wait}, err
}

// LimitNewNamespace sets all limits of a consumer's new namespace to zero before the consumer has access to it.
// Otherwise the consumer could exceed its limits until Reconcile creates the ResourceQuota.
func (c *Controller) LimitNewNamespace(ctx context.Context, consumer, namespace string) error {
	limits, err := c.listLimits(ctx, consumer)
	if err != nil || len(limits) == 0 {
		return err
	}
	found := &corev1.ResourceQuota{}
	if err := c.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: wire.ConsumerQuota}, found); !apierrors.IsNotFound(err) {
		return err
	}
	for name := range limits {
		limits[name] = resource.Quantity{}
	}
	return c.ensureResourceQuota(ctx, namespace, found, limits)
}

// withRest returns the limits of a namespace: its usage plus the remaining amount.
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

// listLimits returns a consumer's limits for resources that are not used by pods: the limits in its Quotas, and
// defaults for resources that are in no Quota. It returns an empty list if there are no such limits.
func (c *Controller) listLimits(ctx context.Context, consumer string) (corev1.ResourceList, error) {
	limits := corev1.ResourceList{}
	if !c.options.Off {
		if err := c.addQuotas(ctx, consumer, limits); err != nil {
			return nil, err
		}
	}
	for name, limit := range c.options.Defaults {
		if _, named := limits[name]; !named {
			limits[name] = limit.DeepCopy()
		}
	}
	return limits, nil
}

// addQuotas adds the limits in a consumer's Quotas for resources that are not used by pods.
func (c *Controller) addQuotas(ctx context.Context, consumer string, limits corev1.ResourceList) error {
	quotas, err := ledger.QuotasOf(ctx, c.client, consumer)
	if err != nil {
		return err
	}
	for i := range quotas {
		for name, limit := range quotas[i].Spec.Resources {
			if IsCounted(name) {
				sum := limits[name]
				sum.Add(limit)
				limits[name] = sum
			}
		}
	}
	return nil
}

// IsCounted reports whether a ResourceQuota can limit the resource and pods do not use it.
func IsCounted(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceRequestsStorage, corev1.ResourcePersistentVolumeClaims, corev1.ResourceServices, corev1.ResourceServicesNodePorts,
		corev1.ResourceServicesLoadBalancers, corev1.ResourceConfigMaps, corev1.ResourceSecrets:
		return true
	}
	return strings.HasPrefix(string(name), "count/") || strings.Contains(string(name), ".storageclass.storage.k8s.io/")
}

// ensureResourceQuota creates, updates or deletes the ResourceQuota of a namespace, so that it contains the limits in
// hard. found is the present ResourceQuota. A new ResourceQuota does not contain the usage yet.
func (c *Controller) ensureResourceQuota(ctx context.Context, namespace string, found *corev1.ResourceQuota, hard corev1.ResourceList) error {
	content, err := json.Marshal(hard)
	if err != nil {
		return fmt.Errorf("encoding the limits of namespace %s, %w", namespace, err)
	}
	// The limits change whenever the consumer's usage changes. This is not a fight with another client.
	exists, desired := found.UID != "", brake.Desired(content)
	switch {
	case !exists && len(hard) == 0, exists && equality.Semantic.DeepEqual(found.Spec.Hard, hard):
		return nil
	case !exists:
		created := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: wire.ConsumerQuota}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
		err := c.client.Create(ctx, created, fieldOwner, desired)
		// If the ResourceQuota exists although it is not in the cache yet, its watch event triggers another
		// reconciliation.
		if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return fmt.Errorf("creating ResourceQuota %s/%s, %w", namespace, wire.ConsumerQuota, err)
		}
		return nil
	case len(hard) == 0:
		if err := c.client.Delete(ctx, found); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting ResourceQuota %s/%s, %w", namespace, wire.ConsumerQuota, err)
		}
		return nil
	}
	changed := found.DeepCopy()
	changed.Spec.Hard = hard
	if err := c.client.Patch(ctx, changed, client.MergeFromWithOptions(found, client.MergeFromWithOptimisticLock{}), fieldOwner, desired); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("updating ResourceQuota %s/%s, %w", namespace, wire.ConsumerQuota, err)
	}
	return nil
}

// isRemote reports whether a namespace was created for a consumer and is not being deleted.
func isRemote(object client.Object) bool {
	return object.GetLabels()[wire.RemoteClusterIDLabel] != "" && object.GetAnnotations()[wire.ManagedByNamespaceMapAnnotation] != "" && object.GetDeletionTimestamp() == nil
}

// Quarantined returns the number of ResourceQuotas that another client keeps changing. They are restored only every few
// seconds.
func (c *Controller) Quarantined() int { return brake.Quarantined(c.client) }

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Metrics count them.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &offloading.QuotaList{}, func(client.Object) bool { return true }
}

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	quotas, err := newQuotaCache(mgr)
	if err != nil {
		return err
	}
	c.quotas = quotas
	ofConsumer := func(id string) []reconcile.Request {
		if id == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: id}}}
	}
	ofNamespace := func(ctx context.Context, name string) []reconcile.Request {
		namespace := &corev1.Namespace{}
		if c.client.Get(ctx, client.ObjectKey{Name: name}, namespace) != nil {
			// If the namespace is not in the cache yet, its own watch event triggers the reconciliation.
			return nil
		}
		return ofConsumer(namespace.Labels[wire.RemoteClusterIDLabel])
	}
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(parallel)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, namespace client.Object) []reconcile.Request {
			return ofConsumer(namespace.GetLabels()[wire.RemoteClusterIDLabel])
		})).
		Watches(&offloading.Quota{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, q client.Object) []reconcile.Request {
			return ofNamespace(ctx, q.GetNamespace())
		})).
		WatchesRawSource(source.Kind(quotas, &corev1.ResourceQuota{}, delayRequests(ofNamespace))).
		Complete(report.Failures(c, c.options.Failed))
}

// delayRequests returns a handler for events of ResourceQuotas. It adds the requests that requestsOf returns for the
// namespace to the queue after usageDelay. Requests from several events are added only once.
func delayRequests(
	requestsOf func(ctx context.Context, namespace string) []reconcile.Request,
) handler.TypedEventHandler[usage, reconcile.Request] {
	enqueue := func(ctx context.Context, q usage, queue requests) {
		for _, request := range requestsOf(ctx, q.Namespace) {
			queue.AddAfter(request, usageDelay)
		}
	}
	return handler.TypedFuncs[usage, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[usage], queue requests) {
			enqueue(ctx, e.Object, queue)
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[usage], queue requests) {
			enqueue(ctx, e.ObjectNew, queue)
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[usage], queue requests) {
			enqueue(ctx, e.Object, queue)
		},
	}
}

type (
	usage    = *corev1.ResourceQuota
	requests = workqueue.TypedRateLimitingInterface[reconcile.Request]
)

// newQuotaCache returns a cache of this controller's ResourceQuotas in all namespaces. This process may not read other
// ResourceQuotas.
func newQuotaCache(mgr manager.Manager) (cache.Cache, error) {
	quotas, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{&corev1.ResourceQuota{}: {Field: fields.OneTermEqualSelector("metadata.name", wire.ConsumerQuota)}},
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the cache of ResourceQuotas, %w", err)
	}
	if err := mgr.Add(quotas); err != nil {
		return nil, fmt.Errorf("adding the cache of ResourceQuotas, %w", err)
	}
	return quotas, nil
}
