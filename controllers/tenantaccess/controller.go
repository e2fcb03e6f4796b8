// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenantaccess runs on a provider. It creates a Tenant for each consumer that refractctl has admitted, and
// enforces the spec.tenantCondition of the Tenant.
//
// Consumers that peer with Liqo's protocol create their Tenant themselves (see package authentication). refractctl
// admits other consumers with RoleBindings in their tenant namespace. The controller creates a Tenant for them, so that
// liqoctl and refractctl can cordon, drain and activate these consumers, too:
//
//	Active    the RoleBindings have their subjects, and the Quota of the consumer is not cordoned
//	Cordoned  the Quota is cordoned: no new pods
//	Drained   the Quota is cordoned, the RoleBindings have no subjects, NamespaceMaps and remote namespaces are deleted
//
// The Tenant and the RoleBindings own each other. If the RoleBinding is deleted (refractctl unpeer), so is the
// Tenant. A consumer whose Tenant is deleted loses its access, as in Liqo, until refractctl peer admits it again.
// When such a consumer is drained, its ResourceSlices are kept, because it cannot create them itself.
//
// The controller never creates RoleBindings. It only removes and restores the subjects of RoleBindings that refractctl
// has created.
package tenantaccess

import (
	"cmp"
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
	"github.com/refract-project/refract/controllers/internal/tenantcondition"
	"github.com/refract-project/refract/controllers/internal/workers"
)

// Options are the settings of the controller.
type Options struct {
	// Enabled determines whether the controller is started.
	Enabled bool
	// RolePrefix is the prefix of the names of this installation's ClusterRoles. If it is empty, it is
	// rbac.DefaultPrefix.
	RolePrefix string
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller enforces the Tenants of consumers that refractctl has admitted.
type Controller struct {
	client  client.Client
	live    client.Reader
	report  *report.Reporter
	options Options
}

// NewController returns a controller that uses the client c; live must not be cached.
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

// Reconcile creates the Tenant of the consumer that owns a tenant namespace, or enforces the existing Tenant.
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
		return reconcile.Result{}, nil // this consumer peers with Liqo's protocol
	}
	return reconcile.Result{}, c.create(ctx, namespace.Name, consumer)
}

// isEnforced reports whether this controller enforces the Tenant.
func isEnforced(object client.Object) bool {
	tenant, ok := object.(*auth.Tenant)
	return ok && tenant.IsOfRefractctl()
}

// create creates the Tenant of a consumer that has access. The Tenant gets the consumer's present condition. It relies
// only on uncached reads, because the peering may have ended a moment ago.
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
	record, err := tenantcondition.ReadRecord(ctx, c.live, namespace)
	if err != nil {
		return err
	}
	condition := cmp.Or(record.Condition, auth.TenantActive)
	if condition == auth.TenantActive && quota != nil && ptr.Deref(quota.Spec.Cordoned, false) {
		// The annotation records that the Tenant has cordoned the Quota, so that the cordon ends when the Tenant
		// becomes Active.
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
		// The Tenant contains no key, so it does not admit anybody even if a client removes the label.
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

// isDrained reports whether refractctl drain tenant has revoked the access to a tenant namespace, and refractctl
// activate tenant has not completely restored it yet.
func (c *Controller) isDrained(ctx context.Context, namespace string) (bool, error) {
	found := &corev1.Namespace{}
	if err := c.live.Get(ctx, client.ObjectKey{Name: namespace}, found); err != nil {
		return false, fmt.Errorf("getting Namespace %s, %w", namespace, err)
	}
	return found.Annotations[wire.DrainedTenantAnnotation] == "true", nil
}

// enforce applies the condition of a Tenant to the consumer's Quota, RoleBindings and NamespaceMaps.
func (c *Controller) enforce(ctx context.Context, tenant *auth.Tenant) error {
	drained := tenant.Spec.TenantCondition == auth.TenantDrained
	if drained || tenant.DeletionTimestamp != nil {
		if err := fresh.Check(ctx, c.client, c.live, tenant); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
	if err := tenantcondition.RecordCondition(ctx, c.client, c.live, tenant); err != nil {
		return err
	}
	if tenant.DeletionTimestamp != nil {
		// The access is revoked immediately, because the garbage collector would revoke it only later.
		_, err := c.setAccess(ctx, tenant, false)
		return err
	}
	// The Quota is cordoned first, so that the consumer cannot create pods even if its access cannot be revoked.
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

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Metrics count them.
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
		// refractctl activate tenant first admits a consumer, and then removes the annotation. Therefore the removal
		// must trigger a reconciliation.
		Watches(&corev1.Namespace{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		Watches(&rbacv1.RoleBinding{}, toNamespace, builder.WithPredicates(predicate.NewPredicateFuncs(isOfRefractctl))).
		Watches(&offloading.Quota{}, toNamespace, builder.WithPredicates(changed)).
		// While a consumer is being drained, it may still create a NamespaceMap, which must be deleted.
		Watches(&offloading.NamespaceMap{}, toNamespace, builder.WithPredicates(changed, predicate.NewPredicateFuncs(isReplicated))).
		Complete(report.Failures(c, c.options.Failed))
}
