// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package resourceslice runs on a provider, and creates the Quotas of accepted ResourceSlices.
//
// A consumer that peers with Liqo's protocol requests resources of the provider with a ResourceSlice. Package
// authentication accepts or denies the ResourceSlice. If Liqo is installed, its authentication module does so
// instead, but creates a Quota only if Liqo's offloading module runs.
//
// The controller copies the granted resources and the cordon from the ResourceSlice to its Quota. Administrators may
// change how the Quota is enforced. If a ResourceSlice is denied after it was accepted, its user cannot create new
// pods, but running pods continue. A Quota without an owner, or with another owner, is left unchanged.
//
// An administrator cordons a ResourceSlice with an annotation, as liqoctl does. But the consumer owns the ResourceSlice
// and may delete it. Therefore the cordon is stored in the Quota, which is kept after the deletion. Until the
// administrator removes the cordon, every ResourceSlice that the consumer creates, with the same name or another, is
// annotated and cordoned, too.
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
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/controllers/internal/workers"
)

// Options are the settings of the controller.
type Options struct {
	// Enabled determines whether the controller is started.
	Enabled bool
	// Limits is the LimitsEnforcement of new Quotas. An empty value means None.
	Limits offloading.LimitsEnforcement
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller creates the Quotas of ResourceSlices.
type Controller struct {
	client  client.Client
	live    client.Reader
	report  *report.Reporter
	options Options
}

// NewController returns a controller that uses the client c; live must not be cached.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	if options.Limits == "" {
		options.Limits = offloading.NoLimitsEnforcement
	}
	return &Controller{client: c, live: live, report: report.New(recorder), options: options}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "resourceslice" }

const (
	createdReason    = "QuotaCreated"
	notCreatedReason = "QuotaNotCreated"
	quotaAction      = "CreateQuota"
	cordonedReason   = "Cordoned"
	cordonAction     = "Cordon"
)

// Reconcile creates or updates the Quota of a ResourceSlice.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	slice := &auth.ResourceSlice{}
	if err := c.client.Get(ctx, request.NamespacedName, slice); err != nil {
		if apierrors.IsNotFound(err) {
			c.report.Clear(request.NamespacedName)
			return reconcile.Result{}, c.endQuotas(ctx, request.NamespacedName)
		}
		return reconcile.Result{}, fmt.Errorf("getting ResourceSlice %s, %w", request.NamespacedName, err)
	}
	if slice.DeletionTimestamp != nil {
		// Nothing has to be done. The Quota is deleted with the slice, and a user without a Quota gets no resources.
		return reconcile.Result{}, nil
	}
	consumer, err := tenancy.Consumer(ctx, c.client, slice.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	if said := ptr.Deref(slice.Spec.ConsumerClusterID, ""); consumer == "" || string(said) != consumer {
		c.report.Warn(slice, notCreatedReason, quotaAction, fmt.Sprintf("spec.consumerClusterID is %q, but namespace %s is not the tenant namespace of that cluster: no Quota is created", said, slice.Namespace))
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, c.ensure(ctx, slice, auth.ResourceSliceUser(slice.Name, consumer))
}

// ensure creates or updates the Quota of the slice's user.
func (c *Controller) ensure(ctx context.Context, slice *auth.ResourceSlice, user string) error {
	key := client.ObjectKey{Namespace: slice.Namespace, Name: user}
	quota := &offloading.Quota{}
	// The Quota is read without a cache. Otherwise the controller might create a Quota that exists but is not cached
	// yet.
	err := c.live.Get(ctx, key, quota)
	switch {
	case apierrors.IsNotFound(err):
		return c.create(ctx, slice, key)
	case err != nil:
		return fmt.Errorf("getting Quota %s, %w", key, err)
	}
	cordonedUID := quota.Annotations[wire.CordonedSliceAnnotation]
	switch owner := metav1.GetControllerOf(quota); {
	case cordonedUID == "" && slice.Status.Decision(auth.ResourcesCondition) == "" && !isTrue(slice.Annotations, wire.CordonAnnotation):
		return nil // no decision about the slice has been made yet
	case cordonedUID != "" && cordonedUID != string(slice.UID) && !isTrue(slice.Annotations, wire.CordonAnnotation):
		return c.cordonAgain(ctx, slice)
	case cordonedUID != "":
	case owner == nil || owner.Kind != kind.Kind || owner.Name != slice.Name:
		c.report.Warn(slice, notCreatedReason, quotaAction, fmt.Sprintf("Quota %s exists and does not belong to this ResourceSlice, so it stays in effect. Delete it to have it created from the ResourceSlice", key))
		return nil
	case owner.UID != slice.UID:
		if err := c.endQuota(ctx, quota, owner); err != nil {
			return err
		}
		return fmt.Errorf("waiting for the deletion of Quota %s, which belongs to a previous ResourceSlice of this name", key)
	}
	c.report.Clear(client.ObjectKeyFromObject(slice))
	desired := quota.DeepCopy()
	desired.Spec.User, desired.Spec.Cordoned = user, cordon(slice)
	if accepted(slice) {
		desired.Spec.Resources = granted(slice)
	}
	own(desired, slice)
	if equality.Semantic.DeepEqual(quota.Spec, desired.Spec) && equality.Semantic.DeepEqual(quota.ObjectMeta, desired.ObjectMeta) {
		return nil
	}
	if err := c.client.Patch(ctx, desired, client.MergeFromWithOptions(quota, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patching Quota %s, %w", key, err)
	}
	return nil
}

// endQuotas deletes the Quota of a ResourceSlice that is gone. The garbage collector also deletes it, but late, or not
// at all while kube-controller-manager is down. Until then, the consumer could still use resources that it has given
// up.
func (c *Controller) endQuotas(ctx context.Context, key client.ObjectKey) error {
	quotas := &offloading.QuotaList{}
	if err := c.live.List(ctx, quotas, client.InNamespace(key.Namespace)); err != nil {
		return fmt.Errorf("listing the Quotas in namespace %s, %w", key.Namespace, err)
	}
	for i := range quotas.Items {
		owner := metav1.GetControllerOf(&quotas.Items[i])
		if owner == nil || owner.Kind != kind.Kind || owner.APIVersion != kind.GroupVersion().String() || owner.Name != key.Name {
			continue
		}
		if err := c.endQuota(ctx, &quotas.Items[i], owner); err != nil {
			return err
		}
	}
	return nil
}

// endQuota deletes a Quota if the ResourceSlice that controls it is gone. If the Quota was cordoned in the meantime, it
// is kept: the deletion fails, because the version of the Quota has changed.
func (c *Controller) endQuota(ctx context.Context, quota *offloading.Quota, owner *metav1.OwnerReference) error {
	slice, key := &auth.ResourceSlice{}, client.ObjectKey{Namespace: quota.Namespace, Name: owner.Name}
	err := c.live.Get(ctx, key, slice)
	switch {
	case err == nil && slice.UID == owner.UID:
		return fmt.Errorf("waiting for ResourceSlice %s to be seen, without which its Quota cannot be judged", key)
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("getting ResourceSlice %s, %w", key, err)
	}
	if err := c.client.Delete(ctx, quota, client.Preconditions{UID: &quota.UID, ResourceVersion: &quota.ResourceVersion}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting Quota %s, %w", client.ObjectKeyFromObject(quota), err)
	}
	return nil
}

// create creates the Quota of a slice that was accepted. It also creates the Quota of a cordoned slice, which must
// remain cordoned.
func (c *Controller) create(ctx context.Context, slice *auth.ResourceSlice, key client.ObjectKey) error {
	isCordoned := isTrue(slice.Annotations, wire.CordonAnnotation)
	if !accepted(slice) && !isCordoned {
		return nil
	}
	if inherits, err := c.hasCordoned(ctx, slice.Namespace); err != nil || inherits && !isCordoned {
		if err == nil {
			err = c.cordonAgain(ctx, slice)
		}
		return err
	}
	// If Liqo's webhook is still installed, it enforces a Quota without an enforcement strictly. Therefore the
	// enforcement is always set.
	quota := &offloading.Quota{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec:       offloading.QuotaSpec{User: key.Name, LimitsEnforcement: c.options.Limits, Resources: granted(slice), Cordoned: cordon(slice)},
	}
	own(quota, slice)
	if err := c.client.Create(ctx, quota); err != nil {
		return fmt.Errorf("creating Quota %s, %w", key, err)
	}
	c.report.Tell(slice, quota, createdReason, quotaAction, fmt.Sprintf("Created Quota %s: the pods of this ResourceSlice may request %s", key.Name, describe(quota.Spec.Resources)))
	return nil
}

// own makes the slice the owner of its Quota. If the slice is cordoned, own removes the owner reference instead, so
// that the Quota outlives the slice.
func own(quota *offloading.Quota, slice *auth.ResourceSlice) {
	if !isTrue(slice.Annotations, wire.CordonAnnotation) {
		delete(quota.Annotations, wire.CordonedSliceAnnotation)
		quota.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(slice, kind)}
		return
	}
	if quota.Annotations == nil {
		quota.Annotations = map[string]string{}
	}
	quota.Annotations[wire.CordonedSliceAnnotation] = string(slice.UID)
	quota.OwnerReferences = nil
}

// hasCordoned reports whether a ResourceSlice of the consumer is cordoned, or was cordoned when it was deleted. It
// looks at the Quotas, which outlive cordoned slices, so that a recreated slice does not escape the cordon.
func (c *Controller) hasCordoned(ctx context.Context, namespace string) (bool, error) {
	quotas := &offloading.QuotaList{}
	if err := c.live.List(ctx, quotas, client.InNamespace(namespace)); err != nil {
		return false, fmt.Errorf("listing the Quotas in namespace %s, %w", namespace, err)
	}
	return slices.ContainsFunc(quotas.Items, func(q offloading.Quota) bool { return q.Annotations[wire.CordonedSliceAnnotation] != "" }), nil
}

// cordonAgain adds the annotation for a cordoned slice, so that the cordon is visible, and the administrator can remove
// it. The update triggers another reconciliation.
func (c *Controller) cordonAgain(ctx context.Context, slice *auth.ResourceSlice) error {
	desired := slice.DeepCopy()
	if desired.Annotations == nil {
		desired.Annotations = map[string]string{}
	}
	desired.Annotations[wire.CordonAnnotation] = "true"
	if err := c.client.Patch(ctx, desired, client.MergeFromWithOptions(slice, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("cordoning ResourceSlice %s, %w", client.ObjectKeyFromObject(slice), err)
	}
	c.report.Warn(slice, cordonedReason, cordonAction, "a ResourceSlice of this consumer was cordoned, so this one is as well: an administrator of this cluster uncordons it with refractctl uncordon resourceslice "+slice.Name)
	return nil
}

// granted returns the granted resources. The result is never nil, because a Quota without resources grants nothing.
func granted(slice *auth.ResourceSlice) corev1.ResourceList {
	if slice.Status.Resources == nil {
		return corev1.ResourceList{}
	}
	return slice.Status.Resources
}

func accepted(slice *auth.ResourceSlice) bool {
	return slice.Status.Decision(auth.ResourcesCondition) == auth.ResourceSliceAccepted
}

// cordon returns the value for spec.cordoned. It is true if the slice is cordoned or not accepted. Otherwise it is nil
// instead of false, as in the Quotas that Liqo writes.
func cordon(slice *auth.ResourceSlice) *bool {
	if !accepted(slice) || cordoned(slice.Annotations) {
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

// kind is the kind of the objects that own Quotas.
var kind = auth.GroupVersion.WithKind(auth.ResourceSliceKind)

// cordoned reports whether the annotations cordon a slice: either liqoctl's annotation for this slice, or the
// annotation that a controller sets on all slices of a tenant.
func cordoned(annotations map[string]string) bool {
	return isTrue(annotations, wire.CordonAnnotation) || isTrue(annotations, wire.CordonTenantAnnotation)
}

func isTrue(annotations map[string]string, key string) bool {
	value, ok := annotations[key]
	return ok && value != "false" && value != "False" && value != "0"
}

// meant reports whether a consumer sent the slice.
func meant(object client.Object) bool { return object.GetLabels()[wire.ReplicatedLabel] == "true" }

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Metrics count them.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &auth.ResourceSliceList{}, meant
}

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	if _, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); err != nil {
		return fmt.Errorf("--resource-slice-quotas and --authentication-enabled need the CRD of ResourceSlices: install those of the chart, %w", err)
	}
	owned := handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &auth.ResourceSlice{}, handler.OnlyControllerOwner())
	return builder.ControllerManagedBy(mgr).
		Named(c.Name()).
		WithOptions(workers.Options(1)).
		Watches(&auth.ResourceSlice{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.NewPredicateFuncs(meant))).
		Watches(&offloading.Quota{}, owned).
		Complete(report.Failures(c, c.options.Failed))
}
