// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"fmt"
	"time"

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
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/clientcert"
)

// Renewals renews the certificates of consumers.
type Renewals struct {
	client  client.Client
	report  *report.Reporter
	issuer  *Issuer
	options Options
}

// NewRenewals returns a controller that uses the client c.
func NewRenewals(c client.Client, recorder events.EventRecorder, issuer *Issuer, options Options) *Renewals {
	return &Renewals{client: c, report: report.New(recorder), issuer: issuer, options: options}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Renewals) Name() string { return "renew" }

const (
	renewedReason       = "CertificateRenewed"
	invalidRenewReason  = "InvalidRenew"
	sliceNotFoundReason = "ResourceSliceNotFound"
	renewAction         = "Renew"
)

// Reconcile issues the next certificate of a Tenant or a ResourceSlice.
func (c *Renewals) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	renew := &auth.Renew{}
	if err := c.client.Get(ctx, request.NamespacedName, renew); err != nil {
		if apierrors.IsNotFound(err) {
			c.report.Clear(request.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if renew.DeletionTimestamp != nil || !isRenewal(renew) {
		return reconcile.Result{}, nil
	}
	answer := c.renew
	if ofConsumer(renew) {
		answer = c.renewConsumer
	}
	err := answer(ctx, renew)
	if refused := refusalOf(err); refused != nil {
		c.report.Warn(renew, refused.reason, renewAction, refused.message)
		if ofConsumer(renew) {
			err = c.answer(ctx, renew, clientcert.Subject{}, auth.RenewStatus{Refusal: refused.reason + ": " + refused.message})
			return reconcile.Result{RequeueAfter: refused.again}, client.IgnoreNotFound(err)
		}
		return reconcile.Result{RequeueAfter: refused.again}, nil
	}
	return reconcile.Result{}, err
}

func (c *Renewals) renew(ctx context.Context, renew *auth.Renew) error {
	tenant, key, err := c.issuer.tenant(ctx, renew.Namespace, &renew.Spec.ConsumerClusterID)
	if err != nil {
		return err
	}
	subject, holder, err := c.holder(ctx, tenant, renew)
	if err != nil {
		return err
	}
	desired := renew.DeepCopy()
	if desired.Status.AuthParams, err = c.issuer.issue(ctx, order{
		consumer: string(tenant.Spec.ClusterID), subject: subject, request: renew.Spec.CSR, key: key, proxy: tenant.Spec.ProxyURL, present: renew.Status.AuthParams, renew: true,
	}); err != nil {
		return err
	}
	// The Tenant or ResourceSlice is updated first, because the status of the Renew means that the renewal is complete.
	if err := c.hand(ctx, holder, desired.Status.AuthParams); err != nil {
		return err
	}
	if equality.Semantic.DeepEqual(renew.Status, desired.Status) {
		return nil
	}
	if err := c.client.Status().Patch(ctx, desired, client.MergeFromWithOptions(renew, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patching the status of Renew %s, %w", client.ObjectKeyFromObject(renew), err)
	}
	c.tellRenewed(renew, subject, desired.Status.AuthParams.SignedCRT)
	return nil
}

func (c *Renewals) tellRenewed(renew *auth.Renew, subject clientcert.Subject, signed []byte) {
	validity := clientcert.ValidityFor(signed, subject, nil)
	c.report.Tell(renew, nil, renewedReason, renewAction, fmt.Sprintf("Renewed the certificate of %s until %s", subject, validity.Until.UTC().Format(time.RFC3339)))
}

// holder returns the Tenant or ResourceSlice whose certificate is renewed, and the subject of the certificate.
func (c *Renewals) holder(ctx context.Context, tenant *auth.Tenant, renew *auth.Renew) (subject clientcert.Subject, holder client.Object, err error) {
	switch {
	case renew.Spec.IdentityType == auth.ControlPlaneIdentityType:
		return controlPlane(tenant), tenant, nil
	case renew.Spec.IdentityType != auth.ResourceSliceIdentityType || renew.Spec.ResourceSliceRef == nil:
		return subject, nil, refuse(invalidRenewReason, "spec.identityType is %q and spec.resourceSliceRef is %v: use ControlPlane, or ResourceSlice with the name of one", renew.Spec.IdentityType, renew.Spec.ResourceSliceRef)
	}
	slice := &auth.ResourceSlice{}
	key := client.ObjectKey{Namespace: renew.Namespace, Name: renew.Spec.ResourceSliceRef.Name}
	err = c.client.Get(ctx, key, slice)
	if apierrors.IsNotFound(err) {
		return subject, nil, refuse(sliceNotFoundReason, "spec.resourceSliceRef names %q, and there is no such ResourceSlice", key.Name)
	}
	if err != nil {
		return subject, nil, fmt.Errorf("getting ResourceSlice %s, %w", key, err)
	}
	if slice.Status.Decision(auth.AuthenticationCondition) != auth.ResourceSliceAccepted {
		return subject, nil, refuse(invalidRenewReason, "ResourceSlice %q was not accepted, so there is nothing to renew", key.Name)
	}
	return virtualKubelet(tenant, slice.Name), slice, nil
}

// hand writes the renewed credentials to the status of their Tenant or ResourceSlice.
func (c *Renewals) hand(ctx context.Context, holder client.Object, params *auth.AuthParams) error {
	before := holder.DeepCopyObject().(client.Object)
	var held **auth.AuthParams
	switch holder := holder.(type) {
	case *auth.Tenant:
		held = &holder.Status.AuthParams
	case *auth.ResourceSlice:
		held = &holder.Status.AuthParams
	default:
		return fmt.Errorf("a %T has no credentials", holder)
	}
	if equality.Semantic.DeepEqual(*held, params) {
		return nil
	}
	*held = params
	if err := c.client.Status().Patch(ctx, holder, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patching the status of %T %s, %w", holder, client.ObjectKeyFromObject(holder), err)
	}
	return nil
}

// isRenewal reports whether a Renew was sent by a consumer and has a request.
func isRenewal(object client.Object) bool {
	renew, ok := object.(*auth.Renew)
	return ok && (renew.Labels[wire.ReplicatedLabel] == "true" || ofConsumer(renew)) && len(renew.Spec.CSR) > 0
}

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Both are used for
// metrics.
func (c *Renewals) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &auth.RenewList{}, isRenewal
}

// Register adds the controller to mgr.
func (c *Renewals) Register(_ context.Context, mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(1)).
		Watches(&auth.Renew{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: workers.Changed}, predicate.NewPredicateFuncs(isRenewal))).
		Complete(report.Failures(c, c.options.Failed))
}
