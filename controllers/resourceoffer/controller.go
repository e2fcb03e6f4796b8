// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package resourceoffer offers a provider's resources to consumers that were joined with refractctl peer.
//
// refractctl peer creates a ResourceSlice for each virtual node in the tenant namespace of the consumer. The controller
// writes the granted resources, and the classes and labels of this cluster, into the status of the slice, and keeps
// them up to date. It does not sign certificates or create Quotas: the Quota that refractctl peer has created limits
// the pods, and an offer never exceeds this Quota. Therefore the controller does not need the permissions of package
// authentication.
package resourceoffer

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/controllers/internal/offer"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/controllers/internal/workers"
)

// Options are the settings of the controller.
type Options struct {
	// Enabled determines whether the controller is started.
	Enabled bool
	// Offer describes the resources that this cluster grants to consumers.
	Offer offer.Offer
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller publishes offers in ResourceSlices.
type Controller struct {
	client    client.Client
	report    *report.Reporter
	publisher *offer.Publisher
	options   Options
}

// NewController returns a controller that uses the client c; live must not be cached.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	return &Controller{client: c, report: report.New(recorder), publisher: &offer.Publisher{Offer: options.Offer, Client: c, Live: live}, options: options}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "resourceoffer" }

const (
	notOfferedReason = "NothingOffered"
	offerAction      = "Offer"
)

// requestsOffer reports whether a consumer sent the slice and it requests only an offer, without a certificate.
func requestsOffer(object client.Object) bool {
	slice, ok := object.(*auth.ResourceSlice)
	return ok && offer.IsForOffer(slice)
}

// Reconcile publishes the offer for one slice.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	slice := &auth.ResourceSlice{}
	if err := c.client.Get(ctx, request.NamespacedName, slice); err != nil {
		if apierrors.IsNotFound(err) {
			c.report.Clear(request.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if slice.DeletionTimestamp != nil || !requestsOffer(slice) || !c.options.Offer.IsResponsibleFor(slice) {
		return reconcile.Result{}, nil
	}
	consumer, err := tenancy.Consumer(ctx, c.client, slice.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	if said := ptr.Deref(slice.Spec.ConsumerClusterID, ""); consumer == "" || string(said) != consumer {
		c.report.Warn(slice, notOfferedReason, offerAction, fmt.Sprintf("spec.consumerClusterID is %q, but namespace %s is not the tenant namespace of that cluster: nothing is offered", said, slice.Namespace))
		return reconcile.Result{}, nil
	}
	desired := slice.DeepCopy()
	granted, err := c.withinQuotas(ctx, slice, consumer)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := c.publisher.PublishOffer(ctx, desired, granted); err != nil {
		return reconcile.Result{}, err
	}
	if equality.Semantic.DeepEqual(slice.Status, desired.Status) {
		return reconcile.Result{}, nil
	}
	if err := c.client.Status().Patch(ctx, desired, client.MergeFromWithOptions(slice, client.MergeFromWithOptimisticLock{})); err != nil {
		return reconcile.Result{}, fmt.Errorf("patching the status of ResourceSlice %s, %w", request.NamespacedName, err)
	}
	c.report.Clear(request.NamespacedName)
	offer.ReportDecisions(c.report, slice, desired)
	return reconcile.Result{}, nil
}

// withinQuotas returns the resources that a slice requests, limited to the Quota of the consumer. Pods beyond the Quota
// would be refused.
func (c *Controller) withinQuotas(ctx context.Context, slice *auth.ResourceSlice, consumer string) (corev1.ResourceList, error) {
	granted := slice.Spec.Resources.DeepCopy()
	if granted == nil {
		granted = corev1.ResourceList{}
	}
	quotas := &offloading.QuotaList{}
	if err := c.client.List(ctx, quotas, client.InNamespace(slice.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the Quotas in namespace %s, %w", slice.Namespace, err)
	}
	for i := range quotas.Items {
		if quotas.Items[i].Spec.User != consumer {
			continue
		}
		for name, most := range quotas.Items[i].Spec.Resources {
			if asked, ok := granted[name]; ok && asked.Cmp(most) > 0 {
				granted[name] = most
			}
		}
	}
	return granted, nil
}

// Enforces returns an empty list of the enforced kind and a filter for ResourceSlices that request an offer.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &auth.ResourceSliceList{}, requestsOffer
}

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	changed := predicate.Funcs{UpdateFunc: workers.Changed}
	ofNamespace := func(ctx context.Context, object client.Object) []reconcile.Request {
		return offer.RequestsForSlices(ctx, c.client, requestsOffer, client.InNamespace(object.GetNamespace()))
	}
	b := builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(1)).
		Watches(&auth.ResourceSlice{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(changed, predicate.NewPredicateFuncs(requestsOffer))).
		// If one slice releases resources, they may be granted to another slice of the same consumer. Therefore all of
		// its slices are reconciled.
		Watches(&auth.ResourceSlice{}, handler.EnqueueRequestsFromMapFunc(ofNamespace), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: hasGrantChanged,
		})).
		Watches(&offloading.Quota{}, handler.EnqueueRequestsFromMapFunc(ofNamespace), builder.WithPredicates(changed))
	if c.options.Offer.Storage {
		b = b.Watches(&storagev1.StorageClass{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
			return offer.RequestsForSlices(ctx, c.client, requestsOffer)
		}), builder.WithPredicates(changed))
	}
	return b.Complete(report.Failures(c, c.options.Failed))
}

// hasGrantChanged reports whether an update has changed the granted resources.
func hasGrantChanged(e event.UpdateEvent) bool {
	before, isSlice := e.ObjectOld.(*auth.ResourceSlice)
	now, ok := e.ObjectNew.(*auth.ResourceSlice)
	return ok && isSlice && !equality.Semantic.DeepEqual(before.Status.Resources, now.Status.Resources)
}
