// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package resourceslice creates, on a provider that Liqo joins to its consumers, the Quotas of the ResourceSlices that were accepted.
//
// A consumer asks for a share of the provider with a ResourceSlice; Liqo's authentication module accepts or denies it, and signs the
// certificate of its user. Liqo creates the Quota of that user only where its own offloading module runs. Where Refract runs in the
// place of that module, this controller does it.
//
// A Quota follows its slice: what was granted, and whether it is cordoned. How strictly it is enforced is the administrator's to change. A
// slice that is denied after it was accepted takes no new pods; those that run go on. A Quota that belongs to nobody, or to
// somebody else, is left as it is.
package resourceslice

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
)

// Options are the settings of the controller.
type Options struct {
	// Enabled has the controller run, which needs Liqo's CRDs.
	Enabled bool
	// Limits is what new Quotas say about how strictly pods must say what they use; empty is None.
	Limits offloading.LimitsEnforcement
	// Failed is called with the errors of reconciliations, unless it is nil.
	Failed func(error)
}

// Controller creates Quotas.
type Controller struct {
	client  client.Client
	live    client.Reader
	report  *report.Reporter
	options Options
}

// NewController returns a controller that works through c; live must not be cached.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	if options.Limits == "" {
		options.Limits = offloading.NoLimitsEnforcement
	}
	return &Controller{client: c, live: live, report: report.New(recorder), options: options}
}

// Name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "resourceslice" }

const (
	createdReason    = "QuotaCreated"
	notCreatedReason = "QuotaNotCreated"
	quotaAction      = "CreateQuota"
)

// Reconcile makes the Quota of a slice what it must be.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	object := empty()
	if err := c.client.Get(ctx, request.NamespacedName, object); err != nil {
		if apierrors.IsNotFound(err) {
			c.report.Clear(request.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if object.GetDeletionTimestamp() != nil {
		return reconcile.Result{}, nil // its Quota goes with it, and a user without one gets nothing
	}
	s, err := decode(object)
	if err != nil {
		c.report.Warn(object, notCreatedReason, quotaAction, fmt.Sprintf("The ResourceSlice cannot be read: %s", err))
		return reconcile.Result{}, nil
	}
	if s.resources() != accepted && s.resources() != denied {
		return reconcile.Result{}, nil
	}
	consumer, err := c.consumer(ctx, object.GetNamespace())
	if err != nil {
		return reconcile.Result{}, err
	}
	if consumer == "" || s.Spec.ConsumerClusterID != consumer {
		c.report.Warn(object, notCreatedReason, quotaAction, fmt.Sprintf("spec.consumerClusterID is %q, but namespace %s is not the tenant namespace of that cluster: no Quota is created", s.Spec.ConsumerClusterID, object.GetNamespace()))
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, c.ensure(ctx, object, s, user(object.GetName(), consumer))
}

// consumer returns whose tenant namespace this is, "" when it is none.
func (c *Controller) consumer(ctx context.Context, name string) (string, error) {
	namespace := &corev1.Namespace{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return "", fmt.Errorf("getting Namespace %s, %w", name, err)
	}
	if namespace.Labels[wire.TenantNamespaceLabel] != "true" {
		return "", nil
	}
	return namespace.Labels[wire.RemoteClusterIDLabel], nil
}

// ensure the Quota of a user.
func (c *Controller) ensure(ctx context.Context, object *unstructured.Unstructured, s slice, user string) error {
	key := client.ObjectKey{Namespace: object.GetNamespace(), Name: user}
	quota := &offloading.Quota{}
	err := c.live.Get(ctx, key, quota) // a Quota that the cache does not have yet would be created twice
	switch {
	case apierrors.IsNotFound(err) && s.resources() == accepted:
		return c.create(ctx, object, s, key)
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("getting Quota %s, %w", key, err)
	}
	switch owner := metav1.GetControllerOf(quota); {
	case owner == nil || owner.Kind != kind.Kind || owner.Name != object.GetName():
		c.report.Warn(object, notCreatedReason, quotaAction, fmt.Sprintf("Quota %s exists and does not belong to this ResourceSlice, so it holds as it is. Delete it to have it created from the ResourceSlice", key))
		return nil
	case owner.UID != object.GetUID():
		return fmt.Errorf("waiting for the deletion of Quota %s, which belongs to a former ResourceSlice of this name", key)
	}
	c.report.Clear(client.ObjectKeyFromObject(object))
	desired := quota.DeepCopy()
	desired.Spec.User, desired.Spec.Cordoned = user, cordon(object, s)
	if s.resources() == accepted {
		desired.Spec.Resources = granted(s)
	}
	if equality.Semantic.DeepEqual(quota.Spec, desired.Spec) {
		return nil
	}
	if err := c.client.Patch(ctx, desired, client.MergeFromWithOptions(quota, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patching Quota %s, %w", key, err)
	}
	return nil
}

func (c *Controller) create(ctx context.Context, object *unstructured.Unstructured, s slice, key client.ObjectKey) error {
	owner := metav1.NewControllerRef(object, kind)
	// Liqo's webhook, which may still be there, takes a Quota that does not say for a strict one.
	quota := &offloading.Quota{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, OwnerReferences: []metav1.OwnerReference{*owner}},
		Spec:       offloading.QuotaSpec{User: key.Name, LimitsEnforcement: c.options.Limits, Resources: granted(s), Cordoned: cordon(object, s)},
	}
	if err := c.client.Create(ctx, quota); err != nil {
		return fmt.Errorf("creating Quota %s, %w", key, err)
	}
	c.report.Tell(object, quota, createdReason, quotaAction, fmt.Sprintf("Created Quota %s: the pods of this ResourceSlice may request %s", key.Name, describe(quota.Spec.Resources)))
	return nil
}

// granted is never nil: a Quota without resources grants none.
func granted(s slice) corev1.ResourceList {
	if s.Status.Resources == nil {
		return corev1.ResourceList{}
	}
	return s.Status.Resources
}

// cordon returns nil rather than false, as Liqo writes it.
func cordon(object *unstructured.Unstructured, s slice) *bool {
	if s.resources() == denied || cordoned(object.GetAnnotations()) {
		return ptr.To(true)
	}
	return nil
}

func describe(resources corev1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		quantity := resources[name]
		parts = append(parts, fmt.Sprintf("%s %s", name, quantity.String()))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

func empty() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return object
}

func meant(object client.Object) bool { return replicated(object.GetLabels()) }

// Enforces returns which objects the controller answers for.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list, meant
}

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	if _, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); err != nil {
		return fmt.Errorf("--resource-slice-quotas needs the CRDs of Liqo's authentication module, %w", err)
	}
	owned := handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), empty(), handler.OnlyControllerOwner())
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(1)).
		Watches(empty(), &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.NewPredicateFuncs(meant))).
		Watches(&offloading.Quota{}, owned).
		Complete(report.Failures(c, c.options.Failed))
}
