// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package resourcerequest denies ResourceSlices on a consumer that no controller will send to a provider.
//
// If liqoctl create resourceslice or a GitOps tool creates a ResourceSlice in a tenant namespace, Liqo's controllers
// send it to the provider. Refract's controllers do not, because they may only read ResourceSlices on a provider.
// Instead, refractctl requests the resources of a virtual node with the permissions of its user. This controller denies
// such a ResourceSlice, so that users do not wait in vain. The conditions contain the command to run instead. A
// ResourceSlice with a certificate request is not denied, because only Liqo's controllers add such a request.
package resourcerequest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
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

// Options are the settings of the controller.
type Options struct {
	// Enabled determines whether the controller is started.
	Enabled bool
	// Joins means that this cluster joins providers by Liqo's protocol (package identity), and sends ResourceSlices to
	// those for which it has an Identity.
	Joins bool
	// Clock returns the time.
	Clock clock.PassiveClock
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller denies ResourceSlices that no controller sends.
type Controller struct {
	client  client.Client
	report  *report.Reporter
	options Options
}

// NewController returns a controller that uses the client c.
func NewController(c client.Client, recorder events.EventRecorder, options Options) *Controller {
	return &Controller{client: c, report: report.New(recorder), options: options}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "resourcerequest" }

const (
	notSentReason = "NotSent"
	heldReason    = "CopyNotDeleted"
	sendAction    = "Send"
	// claimDelay is how long Liqo's controllers, which may run in this cluster, have to add their certificate request
	// to a slice.
	claimDelay = 10 * time.Second
)

// isUnsent reports whether a ResourceSlice is a request from this cluster that no controller has sent.
func isUnsent(object client.Object) bool {
	slice, ok := object.(*auth.ResourceSlice)
	return ok && slice.Labels[wire.ReplicationLabel] == "true" && slice.Labels[wire.ReplicatedLabel] != "true" && len(slice.Spec.CSR) == 0
}

// Reconcile denies one slice, or removes an earlier denial.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	slice := &auth.ResourceSlice{}
	if err := c.client.Get(ctx, request.NamespacedName, slice); err != nil {
		if apierrors.IsNotFound(err) {
			c.report.Clear(request.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if slice.DeletionTimestamp != nil {
		if isHeld(slice) && !c.options.Joins {
			c.report.Warn(slice, heldReason, sendAction, fmt.Sprintf("this ResourceSlice was sent to a provider, where its copy is deleted before it: set authentication.joinProviders in the values of the chart until then, or, if the provider is lost, remove the finalizer %s", wire.ReplicatorFinalizer))
		}
		return reconcile.Result{}, nil
	}
	if !isUnsent(slice) {
		return reconcile.Result{}, c.withdraw(ctx, slice)
	}
	if age := c.options.Clock.Since(slice.CreationTimestamp.Time); age < claimDelay {
		return reconcile.Result{RequeueAfter: claimDelay - age}, nil
	}
	provider := slice.Labels[wire.RemoteIDLabel]
	why := "no controller of this cluster sends ResourceSlices"
	if c.options.Joins {
		identity := client.ObjectKey{Namespace: slice.Namespace, Name: wire.ControlPlaneIdentity(provider)}
		if err := c.client.Get(ctx, identity, &auth.Identity{}); !apierrors.IsNotFound(err) {
			return reconcile.Result{RequeueAfter: claimDelay}, client.IgnoreNotFound(err)
		}
		why = fmt.Sprintf("there is no Identity %s in this namespace, because the clusters were not joined by liqoctl peer", identity.Name)
	}
	if id := ptr.Deref(slice.Spec.ProviderClusterID, ""); id != "" {
		provider = string(id)
	}
	message := fmt.Sprintf("%s, so provider %s was asked for nothing: run refractctl create virtualnode %s --provider=%s --remote-context=CONTEXT with the resources as flags "+
		"(if the provider runs Liqo: refractctl peer --virtual-node=%s), and delete this ResourceSlice", why, provider, slice.Name, provider, slice.Name)
	denied := slice.DeepCopy()
	for _, what := range []auth.ResourceSliceConditionType{auth.AuthenticationCondition, auth.ResourcesCondition} {
		offer.SetCondition(denied, what, auth.ResourceSliceDenied, notSentReason, message)
	}
	c.report.Warn(slice, notSentReason, sendAction, message)
	if equality.Semantic.DeepEqual(slice.Status, denied.Status) {
		return reconcile.Result{}, nil
	}
	if err := c.client.Status().Patch(ctx, denied, client.MergeFromWithOptions(slice, client.MergeFromWithOptimisticLock{})); err != nil {
		return reconcile.Result{}, fmt.Errorf("patching the status of ResourceSlice %s, %w", request.NamespacedName, err)
	}
	return reconcile.Result{}, nil
}

// isNotSent reports whether the condition was set by this controller.
func isNotSent(condition auth.ResourceSliceCondition) bool { return condition.Reason == notSentReason }

// withdraw removes this controller's conditions from a slice that another controller has sent in the meantime.
func (c *Controller) withdraw(ctx context.Context, slice *auth.ResourceSlice) error {
	if !slices.ContainsFunc(slice.Status.Conditions, isNotSent) {
		return nil
	}
	sent := slice.DeepCopy()
	sent.Status.Conditions = slices.DeleteFunc(sent.Status.Conditions, isNotSent)
	if err := c.client.Status().Patch(ctx, sent, client.MergeFromWithOptions(slice, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patching the status of ResourceSlice %s, %w", client.ObjectKeyFromObject(slice), err)
	}
	return nil
}

// isHeld reports whether a ResourceSlice that this cluster has sent waits for the deletion of its copy.
func isHeld(slice *auth.ResourceSlice) bool {
	return slice.DeletionTimestamp != nil && slice.Labels[wire.ReplicatedLabel] != "true" && controllerutil.ContainsFinalizer(slice, wire.ReplicatorFinalizer)
}

// needsAnswer reports whether a slice must be denied, has a denial that must be removed, or cannot be deleted.
func needsAnswer(object client.Object) bool {
	slice, ok := object.(*auth.ResourceSlice)
	return ok && (isUnsent(slice) || isHeld(slice) || slices.ContainsFunc(slice.Status.Conditions, isNotSent))
}

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Metrics count them.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &auth.ResourceSliceList{}, isUnsent
}

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(1)).
		Watches(&auth.ResourceSlice{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.NewPredicateFuncs(needsAnswer))).
		Complete(report.Failures(c, c.options.Failed))
}
