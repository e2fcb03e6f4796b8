// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenantaccess creates, on a provider, a Tenant for each consumer that refractctl has admitted, and enforces
// its spec.tenantCondition.
//
// Consumers that peer with Liqo's protocol create their Tenant themselves (package authentication). Other consumers are
// admitted by refractctl, with RoleBindings in their tenant namespace. The controller creates a Tenant for them, so
// that liqoctl and refractctl cordon, drain and activate every consumer in the same way:
//
//	Active    the RoleBindings have their subjects, and the Quota of the consumer is not cordoned
//	Cordoned  the Quota is cordoned: no new pods
//	Drained   the Quota is cordoned, the RoleBindings have no subjects, NamespaceMaps and remote namespaces are deleted
//
// Tenant and RoleBindings own each other. If the RoleBinding is deleted (refractctl unpeer), so is the Tenant, and a
// consumer whose Tenant is deleted loses its access, as in Liqo. refractctl peer admits it again. The ResourceSlices of
// such a consumer are kept when it is drained, because it cannot create them itself.
//
// The controller never creates a RoleBinding: it only removes and restores the subjects of RoleBindings that refractctl
// has created.
package tenantaccess

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/fresh"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
)

// Options are the settings of the controller.
type Options struct {
	// Enabled starts the controller.
	Enabled bool
	// RolePrefix is the prefix of the names of this installation's ClusterRoles; empty is rbac.DefaultPrefix.
	RolePrefix string
	// Failed is called with the errors of reconciliations, unless it is nil.
	Failed func(error)
}

// Controller enforces the Tenants of consumers that refractctl has admitted.
type Controller struct {
	client  client.Client
	live    client.Reader
	report  *report.Reporter
	options Options
}

// NewController returns a controller that works through c; live must not be cached.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	return &Controller{client: c, live: live, report: report.New(recorder), options: options}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "tenantaccess" }

const (
	createdReason         = "TenantCreated"
	revokedReason         = "AccessRevoked"
	restoredReason        = "AccessRestored"
	notAdmittedReason     = "NotAdmitted"
	alreadyAdmittedReason = "AlreadyAdmitted"
	quotaNotFoundReason   = "QuotaNotFound"
	drainedReason         = "TenantDrained"
	admitAction           = "Admit"
)

// Reconcile enforces the Tenant of the consumer of one tenant namespace, or creates it.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace := &corev1.Namespace{}
	if err := c.client.Get(ctx, request.NamespacedName, namespace); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	consumer := namespace.Labels[wire.RemoteClusterIDLabel]
	if namespace.Labels[wire.TenantNamespaceLabel] != "true" || consumer == "" || namespace.Name != wire.TenantNamespace(consumer) || namespace.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	tenants := &auth.TenantList{}
	if err := c.client.List(ctx, tenants, client.InNamespace(namespace.Name)); err != nil {
		return reconcile.Result{}, fmt.Errorf("listing the Tenants in namespace %s, %w", namespace.Name, err)
	}
	at := slices.IndexFunc(tenants.Items, func(tenant auth.Tenant) bool { return string(tenant.Spec.ClusterID) == consumer && isEnforced(&tenant) })
	if at >= 0 {
		return reconcile.Result{}, c.enforce(ctx, &tenants.Items[at])
	}
	c.report.Clear(client.ObjectKey{Namespace: namespace.Name, Name: consumer})
	if len(tenants.Items) > 0 {
		return reconcile.Result{}, nil // it peers with Liqo's protocol
	}
	return reconcile.Result{}, c.create(ctx, namespace.Name, consumer)
}

// isEnforced reports whether this controller enforces a Tenant.
func isEnforced(object client.Object) bool {
	tenant, ok := object.(*auth.Tenant)
	return ok && tenant.IsOfRefractctl()
}

// create creates the Tenant of a consumer that has access, with the consumer's present condition. All reads are
// uncached, because a peering may have ended a moment ago.
func (c *Controller) create(ctx context.Context, namespace, consumer string) error {
	binding := &rbacv1.RoleBinding{}
	key := client.ObjectKey{Namespace: namespace, Name: c.bindings(namespace, consumer)[0].Name}
	err := c.client.Get(ctx, key, binding)
	if err == nil {
		err = c.live.Get(ctx, key, binding)
	}
	if err != nil || !isOfRefractctl(binding) || binding.DeletionTimestamp != nil || len(binding.Subjects) == 0 {
		return client.IgnoreNotFound(err)
	}
	if owner := ownerOf(binding); owner != nil {
		return c.revokeOrphans(ctx, namespace, consumer, owner)
	}
	if drained, err := c.isDrained(ctx, namespace); err != nil || drained {
		return err
	}
	quota, err := quotaOf(ctx, c.live, namespace, consumer)
	if err != nil {
		return err
	}
	condition := auth.TenantActive
	if quota != nil && ptr.Deref(quota.Spec.Cordoned, false) {
		// The Quota is uncordoned when the Tenant becomes Active.
		if err := c.patchQuota(ctx, quota, true); err != nil {
			return err
		}
		condition = auth.TenantCordoned
	}
	tenant := &auth.Tenant{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: consumer, Labels: map[string]string{wire.RemoteClusterIDLabel: consumer, wire.AdmittedByLabel: wire.AdmittedByRefractctl},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "RoleBinding", Name: binding.Name, UID: binding.UID}},
		},
		// It has no key, so that it admits nobody if somebody removes the label.
		Spec: auth.TenantSpec{ClusterID: core.ClusterID(consumer), AuthzPolicy: ptr.To(auth.KeysExchange), TenantCondition: condition},
	}
	if err := c.client.Create(ctx, tenant); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return fmt.Errorf("creating Tenant %s, %w", client.ObjectKeyFromObject(tenant), err)
	}
	c.report.Tell(tenant, binding, createdReason, admitAction, fmt.Sprintf("refractctl has admitted consumer %s: set spec.tenantCondition to Cordoned or Drained to limit what it may do", consumer))
	return nil
}

// isDrained reports whether refractctl drain tenant has revoked the access to a tenant namespace, and activate tenant has not yet restored all of it.
func (c *Controller) isDrained(ctx context.Context, namespace string) (bool, error) {
	found := &corev1.Namespace{}
	if err := c.live.Get(ctx, client.ObjectKey{Name: namespace}, found); err != nil {
		return false, fmt.Errorf("getting Namespace %s, %w", namespace, err)
	}
	return found.Annotations[wire.DrainedTenantAnnotation] == "true", nil
}

// enforce enforces the condition of a Tenant.
func (c *Controller) enforce(ctx context.Context, tenant *auth.Tenant) error {
	drained := tenant.Spec.TenantCondition == auth.TenantDrained
	if drained || tenant.DeletionTimestamp != nil {
		if err := fresh.Check(ctx, c.client, c.live, tenant); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	if tenant.DeletionTimestamp != nil {
		_, err := c.setAccess(ctx, tenant, false) // the garbage collector would revoke the access later
		return err
	}
	// The Quota is cordoned first, so that a consumer whose access cannot be revoked creates nothing more.
	limited, err := c.setCordon(ctx, tenant, drained || tenant.Spec.TenantCondition == auth.TenantCordoned)
	if err != nil {
		return err
	}
	bound, err := c.setAccess(ctx, tenant, !drained)
	if err != nil {
		return err
	}
	if !bound {
		c.report.Warn(tenant, notAdmittedReason, admitAction, fmt.Sprintf("consumer %s has no RoleBinding %s that refractctl has created, so it has no access that this Tenant could limit: run refractctl peer, or delete the Tenant",
			tenant.Spec.ClusterID, c.bindings(tenant.Namespace, string(tenant.Spec.ClusterID))[0].Name))
		return nil
	}
	if drained {
		if err := c.deleteMaps(ctx, tenant); err != nil {
			return err
		}
	}
	switch {
	case len(tenant.Spec.CSR) > 0 || len(tenant.Spec.PublicKey) > 0:
		c.report.Warn(tenant, alreadyAdmittedReason, admitAction, fmt.Sprintf("consumer %s was admitted by refractctl, so the request of liqoctl peer in spec.csr is not answered: run refractctl unpeer first", tenant.Spec.ClusterID))
	case limited:
		c.report.Clear(client.ObjectKeyFromObject(tenant))
	}
	return c.writeStatus(ctx, tenant)
}

func (c *Controller) writeStatus(ctx context.Context, tenant *auth.Tenant) error {
	if tenant.Status.TenantNamespace == tenant.Namespace {
		return nil
	}
	desired := tenant.DeepCopy()
	desired.Status.TenantNamespace = tenant.Namespace
	if err := c.client.Status().Patch(ctx, desired, client.MergeFrom(tenant)); err != nil {
		return fmt.Errorf("patching the status of Tenant %s, %w", client.ObjectKeyFromObject(tenant), err)
	}
	return nil
}

// Enforces returns the objects that the controller enforces, for metrics.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &auth.TenantList{}, isEnforced
}

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	toNamespace := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, object client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: object.GetNamespace()}}}
	})
	changed := predicate.Funcs{UpdateFunc: workers.Changed}
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(1)).
		Watches(&auth.Tenant{}, toNamespace, builder.WithPredicates(changed)).
		// refractctl activate tenant admits a consumer, and then removes the annotation.
		Watches(&corev1.Namespace{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		Watches(&rbacv1.RoleBinding{}, toNamespace, builder.WithPredicates(predicate.NewPredicateFuncs(isOfRefractctl))).
		Watches(&offloading.Quota{}, toNamespace, builder.WithPredicates(changed)).
		// A consumer that is being drained may still have created a NamespaceMap.
		Watches(&offloading.NamespaceMap{}, toNamespace, builder.WithPredicates(changed, predicate.NewPredicateFuncs(isReplicated))).
		Complete(report.Failures(c, c.options.Failed))
}
