// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package authentication

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/finalizer"
	"github.com/refract-project/refract/controllers/internal/fresh"
	"github.com/refract-project/refract/controllers/internal/objectcounts"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/tenantcondition"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/remotedata"
)

// Tenants admits consumers.
type Tenants struct {
	client  client.Client
	live    client.Reader
	report  *report.Reporter
	issuer  *Issuer
	counts  *objectcounts.Counts
	options Options
}

// NewTenants returns a controller that uses the client c; live must not use a cache.
func NewTenants(c client.Client, live client.Reader, recorder events.EventRecorder, issuer *Issuer, options Options) *Tenants {
	counts := objectcounts.New(c, objectcounts.Options{
		Limits: objectcounts.OfTenantNamespaces(options.ObjectCounts), RecountDelay: options.RecountDelay,
	})
	return &Tenants{client: c, live: live, report: report.New(recorder), issuer: issuer, counts: counts, options: options}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Tenants) Name() string { return "tenant" }

const (
	admittedReason          = "TenantAdmitted"
	drainedReason           = "TenantDrained"
	conditionRestoredReason = "TenantConditionRestored"
	admitAction             = "Admit"
)

// Reconcile grants the consumer of a Tenant access to its tenant namespace, or revokes the access.
func (c *Tenants) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	tenant := &auth.Tenant{}
	if err := c.client.Get(ctx, request.NamespacedName, tenant); err != nil {
		if apierrors.IsNotFound(err) {
			c.report.Clear(request.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !isOwn(tenant) {
		return reconcile.Result{}, nil
	}
	if tenant.DeletionTimestamp != nil {
		return reconcile.Result{}, c.leave(ctx, tenant)
	}
	err := c.admit(ctx, tenant)
	if refused := refusalOf(err); refused != nil {
		c.report.Warn(tenant, refused.reason, admitAction, refused.message)
		again := c.counts.RecountAfter(tenant.Namespace)
		if again == 0 || refused.again > 0 && refused.again < again {
			again = refused.again
		}
		return reconcile.Result{RequeueAfter: again}, nil
	}
	if err == nil {
		c.report.Clear(request.NamespacedName)
	}
	return reconcile.Result{RequeueAfter: c.counts.RecountAfter(tenant.Namespace)}, err
}

// leave revokes the access of a Tenant that is being deleted. The Tenant owns the RoleBinding, so the RoleBinding is
// deleted even if this process does not run.
func (c *Tenants) leave(ctx context.Context, tenant *auth.Tenant) error {
	counts, err := tenantOf(ctx, c.client, tenant.Namespace)
	if err != nil {
		return err
	}
	if counts == nil { // otherwise, the access belongs to another Tenant of the namespace
		if err := c.unbind(ctx, tenant); err != nil {
			return err
		}
	}
	return finalizer.Ensure(ctx, c.client, tenant, wire.TenantFinalizer, false)
}

func (c *Tenants) admit(ctx context.Context, tenant *auth.Tenant) error {
	if err := c.issuer.entitled(ctx, tenant); err != nil {
		return err
	}
	if restored, err := c.restoreCondition(ctx, tenant); err != nil || restored {
		return err
	}
	switch tenant.Spec.TenantCondition {
	case auth.TenantDrained:
		return c.drain(ctx, tenant)
	case auth.TenantCordoned:
		if err := c.cordon(ctx, tenant.Namespace, true); err != nil {
			return err
		}
	default:
		if err := c.cordon(ctx, tenant.Namespace, false); err != nil {
			return err
		}
	}
	// The limits are applied before the consumer gets any permission in the namespace.
	if err := c.counts.Ensure(ctx, tenant.Namespace, nil, metav1.ObjectMeta{Labels: map[string]string{wire.RemoteClusterIDLabel: string(tenant.Spec.ClusterID)}}); err != nil {
		return err
	}
	desired := tenant.DeepCopy()
	desired.Status.TenantNamespace = tenant.Namespace
	if tenant.Spec.Policy() == auth.KeysExchange {
		key, err := c.issuer.prove(ctx, tenant)
		if err != nil {
			return err
		}
		if desired.Status.AuthParams, err = c.issuer.issue(ctx, order{
			consumer: string(tenant.Spec.ClusterID), subject: controlPlane(tenant), request: tenant.Spec.CSR, key: key, proxy: tenant.Spec.ProxyURL, present: tenant.Status.AuthParams,
		}); err != nil {
			return err
		}
		if err := c.bind(ctx, tenant); err != nil {
			return err
		}
	}
	if equality.Semantic.DeepEqual(tenant.Status, desired.Status) {
		return nil
	}
	if err := c.client.Status().Patch(ctx, desired, client.MergeFromWithOptions(tenant, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patching the status of Tenant %s, %w", client.ObjectKeyFromObject(tenant), err)
	}
	c.report.Tell(tenant, nil, admittedReason, admitAction, fmt.Sprintf("Consumer %s has access to its tenant namespace %s", tenant.Spec.ClusterID, tenant.Namespace))
	return nil
}

// restoreCondition records the condition of a Tenant. If the Tenant is new, it gets the recorded condition of the
// consumer's former Tenant. restoreCondition reports whether the Tenant was changed.
func (c *Tenants) restoreCondition(ctx context.Context, tenant *auth.Tenant) (bool, error) {
	condition, err := tenantcondition.RestoreCondition(ctx, c.client, c.live, tenant)
	switch {
	case err != nil:
		return false, err
	case condition == "":
		return false, tenantcondition.RecordCondition(ctx, c.client, c.live, tenant)
	}
	c.report.Warn(tenant, conditionRestoredReason, admitAction, fmt.Sprintf(
		"an administrator had set consumer %s to %s before its former Tenant was deleted, so spec.tenantCondition was set to that again. An administrator can run refractctl activate tenant %s",
		tenant.Spec.ClusterID, condition, tenant.Spec.ClusterID))
	return true, nil
}

// binding returns the RoleBinding of the consumer's controllers. The consumer's virtual kubelets are not subjects of
// it: with the permission to change a ResourceSlice, they could uncordon the slice, which the chart's policies prevent
// only for the controllers. The binding has the name of the role, so that this process only needs permission to delete
// RoleBindings with this name.
func (c *Tenants) binding(tenant *auth.Tenant) *rbacv1.RoleBinding {
	role, consumer := rbac.RemoteTenant().Named(c.options.RolePrefix), string(tenant.Spec.ClusterID)
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: tenant.Namespace, Name: role, Labels: map[string]string{wire.RemoteClusterIDLabel: consumer},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(tenant, auth.GroupVersion.WithKind(auth.TenantKind))},
		},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{rbac.User(consumer)},
	}
}

func (c *Tenants) bind(ctx context.Context, tenant *auth.Tenant) error {
	desired, present := c.binding(tenant), &rbacv1.RoleBinding{}
	err := c.live.Get(ctx, client.ObjectKeyFromObject(desired), present)
	switch {
	case apierrors.IsNotFound(err):
		err = c.client.Create(ctx, desired)
	case err == nil && (!equality.Semantic.DeepEqual(present.Subjects, desired.Subjects) || !metav1.IsControlledBy(present, tenant)):
		changed := present.DeepCopy()
		changed.Subjects = desired.Subjects
		// References that other clients have set are kept. A reference to another Tenant belongs to a former Tenant of
		// the consumer.
		former := func(owner metav1.OwnerReference) bool {
			return owner.Kind == auth.TenantKind || owner.Controller != nil && *owner.Controller
		}
		changed.OwnerReferences = append(slices.DeleteFunc(changed.OwnerReferences, former), desired.OwnerReferences...)
		err = c.client.Patch(ctx, changed, client.MergeFromWithOptions(present, client.MergeFromWithOptimisticLock{}))
	}
	if err != nil {
		return fmt.Errorf("binding role %s in tenant namespace %s, %w", desired.RoleRef.Name, tenant.Namespace, err)
	}
	return nil
}

func (c *Tenants) unbind(ctx context.Context, tenant *auth.Tenant) error {
	binding := c.binding(tenant)
	if err := c.client.Delete(ctx, binding); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting RoleBinding %s, %w", client.ObjectKeyFromObject(binding), err)
	}
	return nil
}

// cordon adds the cordon annotation to the ResourceSlices of a consumer, or removes the annotation.
func (c *Tenants) cordon(ctx context.Context, namespace string, cordoned bool) error {
	list := &auth.ResourceSliceList{}
	if err := c.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing the ResourceSlices in namespace %s, %w", namespace, err)
	}
	for i := range list.Items {
		slice := &list.Items[i]
		if _, is := slice.Annotations[wire.CordonTenantAnnotation]; is == cordoned || !answers(slice) {
			continue
		}
		changed := slice.DeepCopy()
		delete(changed.Annotations, wire.CordonTenantAnnotation)
		if cordoned {
			metav1.SetMetaDataAnnotation(&changed.ObjectMeta, wire.CordonTenantAnnotation, "true")
		}
		if err := c.client.Patch(ctx, changed, client.MergeFrom(slice)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("annotating ResourceSlice %s, %w", client.ObjectKeyFromObject(slice), err)
		}
	}
	return nil
}

// drain revokes everything that the consumer has in this cluster. The access is revoked first, because the consumer
// would otherwise request everything else again.
func (c *Tenants) drain(ctx context.Context, tenant *auth.Tenant) error {
	if err := fresh.Check(ctx, c.client, c.live, tenant); err != nil {
		return err
	}
	if err := c.unbind(ctx, tenant); err != nil {
		return err
	}
	slices, maps := &auth.ResourceSliceList{}, &offloading.NamespaceMapList{}
	for _, list := range []client.ObjectList{slices, maps} {
		if err := c.client.List(ctx, list, client.InNamespace(tenant.Namespace), client.MatchingLabels{wire.ReplicatedLabel: "true"}); err != nil {
			return fmt.Errorf("listing the requests of consumer %s, %w", tenant.Spec.ClusterID, err)
		}
	}
	var objects []client.Object
	for i := range slices.Items {
		objects = append(objects, &slices.Items[i])
	}
	for i := range maps.Items {
		objects = append(objects, &maps.Items[i])
	}
	for _, object := range objects {
		if object.GetDeletionTimestamp() != nil {
			continue
		}
		if err := c.confirmDeletion(ctx, object); err != nil {
			return err
		}
		if err := c.client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %T %s, %w", object, client.ObjectKeyFromObject(object), err)
		}
		log.FromContext(ctx).Info("Deleted the requests of a drained consumer", "consumer", tenant.Spec.ClusterID, "object", client.ObjectKeyFromObject(object))
	}
	if len(objects) > 0 {
		c.report.Tell(tenant, nil, drainedReason, admitAction, fmt.Sprintf("Consumer %s is drained: deleted its %d ResourceSlices and %d NamespaceMaps, and with them its remote namespaces",
			tenant.Spec.ClusterID, len(slices.Items), len(maps.Items)))
	}
	return nil
}

// confirmDeletion confirms that the data in the remote namespaces of a NamespaceMap may be deleted with the map.
// Draining removes everything that the consumer has in this cluster. Without the confirmation, a PersistentVolumeClaim
// would keep the remote namespace and the pods in it.
func (c *Tenants) confirmDeletion(ctx context.Context, object client.Object) error {
	mapping, ok := object.(*offloading.NamespaceMap)
	if !ok || remotedata.IsConfirmed(mapping) {
		return nil
	}
	changed := mapping.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, wire.DeleteDataAnnotation, "true")
	if err := c.client.Patch(ctx, changed, client.MergeFrom(mapping)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotating NamespaceMap %s, %w", client.ObjectKeyFromObject(mapping), err)
	}
	return nil
}

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Both are used for
// metrics.
func (c *Tenants) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &auth.TenantList{}, isOwn
}

// isOwn reports whether the consumer of a Tenant peers with Liqo's protocol. Package tenantaccess handles all other
// Tenants.
func isOwn(object client.Object) bool {
	tenant, ok := object.(*auth.Tenant)
	return ok && !tenant.IsOfRefractctl()
}

// Register adds this controller and the nonce controller to mgr.
func (c *Tenants) Register(_ context.Context, mgr manager.Manager) error {
	secrets, err := nonceCache(mgr)
	if err != nil {
		return err
	}
	changed := predicate.Funcs{UpdateFunc: workers.Changed}
	ofNamespace := func(ctx context.Context, object client.Object) []reconcile.Request {
		return c.in(ctx, object.GetNamespace())
	}
	if err := (&nonces{c.client, secrets, c.report}).register(mgr, c.options.Failed); err != nil {
		return err
	}
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(2)).
		Watches(&auth.Tenant{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(changed)).
		// When the effective Tenant of a namespace is deleted, the next oldest Tenant becomes effective.
		Watches(&auth.Tenant{}, handler.EnqueueRequestsFromMapFunc(ofNamespace), builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectNew.GetDeletionTimestamp() != nil },
		})).
		// A new slice of a cordoned Tenant must be annotated, too.
		Watches(&auth.ResourceSlice{}, handler.EnqueueRequestsFromMapFunc(ofNamespace), builder.WithPredicates(changed)).
		Watches(&corev1.ResourceQuota{}, handler.EnqueueRequestsFromMapFunc(ofNamespace), builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			return objectcounts.Changed(e.ObjectOld.(*corev1.ResourceQuota), e.ObjectNew.(*corev1.ResourceQuota))
		}})).
		WatchesRawSource(source.Kind(secrets, &corev1.Secret{}, handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, secret *corev1.Secret) []reconcile.Request {
			return c.in(ctx, secret.Namespace)
		}))).
		Complete(report.Failures(c, c.options.Failed))
}

// in returns reconcile requests for all Tenants of a namespace.
func (c *Tenants) in(ctx context.Context, namespace string) (requests []reconcile.Request) {
	list := &auth.TenantList{}
	if err := c.client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		log.FromContext(ctx).Error(err, "The Tenants of a namespace cannot be listed", "namespace", namespace)
		return nil
	}
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}
