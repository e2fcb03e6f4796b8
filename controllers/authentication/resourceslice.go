// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/offer"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
)

// ResourceSlices accepts or denies the ResourceSlices of consumers.
type ResourceSlices struct {
	client    client.Client
	report    *report.Reporter
	issuer    *Issuer
	publisher *offer.Publisher
	options   Options
}

// NewResourceSlices returns a controller that uses the client c; live must not use a cache.
func NewResourceSlices(c client.Client, live client.Reader, recorder events.EventRecorder, issuer *Issuer, options Options) *ResourceSlices {
	return &ResourceSlices{client: c, report: report.New(recorder), issuer: issuer, publisher: &offer.Publisher{Offer: options.Offer, Client: c, Live: live}, options: options}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *ResourceSlices) Name() string { return "resourceslicerequest" }

// Reasons of conditions. Liqo uses the same reasons.
const (
	authenticationAcceptedReason = "ResourceSliceAuthenticationAccepted"
	authenticationDeniedReason   = "ResourceSliceAuthenticationDenied"
)

// answers reports whether a slice was sent by a consumer and contains a certificate request.
func answers(object client.Object) bool {
	slice, ok := object.(*auth.ResourceSlice)
	return ok && slice.Labels[wire.ReplicatedLabel] == "true" && len(slice.Spec.CSR) > 0
}

// Reconcile accepts or denies one ResourceSlice.
func (c *ResourceSlices) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	slice := &auth.ResourceSlice{}
	if err := c.client.Get(ctx, request.NamespacedName, slice); err != nil {
		if apierrors.IsNotFound(err) {
			c.report.Clear(request.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if slice.DeletionTimestamp != nil || !answers(slice) {
		return reconcile.Result{}, nil
	}
	desired := slice.DeepCopy()
	tenant, err := c.authenticate(ctx, desired)
	refused := refusalOf(err)
	switch {
	case refused != nil && refused.again > 0: // this is a temporary problem of this cluster, so an accepted slice remains accepted
		c.report.Warn(slice, refused.reason, offer.DecideAction, refused.message)
		return reconcile.Result{RequeueAfter: refused.again}, nil
	case refused != nil:
		c.report.Warn(slice, refused.reason, offer.DecideAction, refused.message)
		offer.SetCondition(desired, auth.AuthenticationCondition, auth.ResourceSliceDenied, authenticationDeniedReason, refused.message)
		if desired.Status.Condition(auth.ResourcesCondition) != nil { // without credentials, the grant cannot be used
			offer.DenyResources(desired, refused.message)
		}
	case err != nil:
		return reconcile.Result{}, err
	default:
		offer.SetCondition(desired, auth.AuthenticationCondition, auth.ResourceSliceAccepted, authenticationAcceptedReason, "The certificate was signed")
		if err := c.grant(ctx, tenant, desired); err != nil {
			return reconcile.Result{}, err
		}
		c.report.Clear(request.NamespacedName)
	}
	if equality.Semantic.DeepEqual(slice.Status, desired.Status) {
		return reconcile.Result{}, nil
	}
	if err := c.client.Status().Patch(ctx, desired, client.MergeFromWithOptions(slice, client.MergeFromWithOptimisticLock{})); err != nil {
		return reconcile.Result{}, fmt.Errorf("patching the status of ResourceSlice %s, %w", request.NamespacedName, err)
	}
	if refused == nil { // otherwise, an Event reports the refusal
		offer.ReportDecisions(c.report, slice, desired)
	}
	return reconcile.Result{}, nil
}

// authenticate issues the certificate of the slice's user, and returns the Tenant.
func (c *ResourceSlices) authenticate(ctx context.Context, slice *auth.ResourceSlice) (*auth.Tenant, error) {
	tenant, key, err := c.issuer.tenant(ctx, slice.Namespace, slice.Spec.ConsumerClusterID)
	if err != nil {
		return nil, err
	}
	slice.Status.AuthParams, err = c.issuer.issue(ctx, order{
		consumer: string(tenant.Spec.ClusterID), subject: virtualKubelet(tenant, slice.Name), request: slice.Spec.CSR, key: key, proxy: tenant.Spec.ProxyURL, present: slice.Status.AuthParams,
	})
	return tenant, err
}

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Both are used for
// metrics.
func (c *ResourceSlices) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &auth.ResourceSliceList{}, answers
}

// Register adds the controller to mgr.
func (c *ResourceSlices) Register(_ context.Context, mgr manager.Manager) error {
	changed := predicate.Funcs{UpdateFunc: workers.Changed}
	b := builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(2)).
		Watches(&auth.ResourceSlice{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(changed, predicate.NewPredicateFuncs(answers))).
		// Updates of the Tenant's status are included, because slices depend on the admission of the consumer.
		Watches(&auth.Tenant{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, tenant client.Object) []reconcile.Request {
			return offer.RequestsForSlices(ctx, c.client, answers, client.InNamespace(tenant.GetNamespace()))
		}))
	if c.options.Offer.Storage {
		b = b.Watches(&storagev1.StorageClass{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
			return offer.RequestsForSlices(ctx, c.client, answers)
		}), builder.WithPredicates(changed))
	}
	return b.Complete(report.Failures(c, c.options.Failed))
}
