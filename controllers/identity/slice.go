// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/brake"
	"github.com/refract-project/refract/controllers/internal/finalizer"
	"github.com/refract-project/refract/controllers/internal/fresh"
	"github.com/refract-project/refract/controllers/internal/offer"
	"github.com/refract-project/refract/controllers/internal/peers"
	"github.com/refract-project/refract/controllers/internal/remote"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/workers"
	"github.com/refract-project/refract/internal/clientcert"
)

// ResourceSlices sends the ResourceSlices of this cluster to their providers.
type ResourceSlices struct {
	access  *Access
	client  client.Client
	live    client.Reader
	report  *report.Reporter
	options Options
	// remotes gives access to the copies on the providers. brake limits how often a copy is restored.
	remotes *remote.Pool
	brake   *brake.Brake

	mu sync.Mutex
	// used contains the last access to the copy of each slice. When a tenant namespace is deleted, the Identity may be
	// gone before the slice.
	used map[types.NamespacedName]remote.Access
	// answers limits how often the status of each slice follows its copy.
	answers map[types.NamespacedName]*rate.Limiter
}

// NewResourceSlices returns the controller of this cluster's ResourceSlices. It writes with c; live must not be cached.
func NewResourceSlices(c client.Client, live client.Reader, recorder events.EventRecorder, access *Access, options Options) *ResourceSlices {
	reporter := report.New(recorder)
	kind := auth.GroupVersion.WithKind(auth.ResourceSliceKind)
	return &ResourceSlices{
		access: access, client: c, live: live, report: reporter, options: options,
		brake: brake.New(kind, nil, reporter, options.Clock), used: map[types.NamespacedName]remote.Access{}, answers: map[types.NamespacedName]*rate.Limiter{},
		remotes: remote.NewPool(remote.Options{
			Scheme: c.Scheme(), Kind: kind, SameName: true,
			Selector: labels.SelectorFromSet(labels.Set{wire.OriginIDLabel: options.ClusterID.String(), wire.ReplicatedLabel: "true"}),
		}),
	}
}

// Name returns the name of the controller in logs, metrics and Events.
func (s *ResourceSlices) Name() string { return "resourceslicesender" }

const (
	invalidSliceReason = "InvalidResourceSlice"
	notSentReason      = "ResourceSliceNotSent"
	noAccessReason     = "ProviderNotReachable"
	withdrawnReason    = "AccessWithdrawn"
	deniedReason       = "ResourceSliceDenied"
	sendAction         = "Send"
	// withdrawnRetryInterval is the interval at which a provider that has withdrawn its access is asked again. Nothing
	// runs there in the meantime.
	withdrawnRetryInterval = 15 * time.Second
	// answerInterval is how often the status of a ResourceSlice follows its copy in the long run. With a shorter interval,
	// a provider can make this cluster write more often. With a longer one, a node follows a changed offer later.
	answerInterval = 10 * time.Second
	// answerBurst is the number of writes without a pause. A join takes three.
	answerBurst = 10
)

// isOutgoing reports whether this cluster sends the ResourceSlice to a provider.
func isOutgoing(object client.Object) bool {
	l := object.GetLabels()
	return l[wire.ReplicationLabel] == "true" && l[wire.ReplicatedLabel] != "true" && l[wire.RemoteIDLabel] != "" || wasSent(object)
}

// wasSent reports whether a ResourceSlice of this cluster has a copy on a provider. Its labels may have been removed
// since it was sent.
func wasSent(object client.Object) bool {
	return object.GetLabels()[wire.ReplicatedLabel] != "true" && controllerutil.ContainsFinalizer(object, wire.ReplicatorFinalizer)
}

// Reconcile sends one ResourceSlice to its provider, and applies the answer.
func (s *ResourceSlices) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	slice := &auth.ResourceSlice{}
	if err := s.client.Get(ctx, request.NamespacedName, slice); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("getting ResourceSlice %s, %w", request.NamespacedName, err)
	}
	if slice.UID == "" || !isOutgoing(slice) {
		s.forget(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	provider, err := s.access.providerOf(ctx, slice.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	run := s.sendSlice
	// A slice that was changed after it was sent still has a copy.
	if slice.DeletionTimestamp != nil && provider != "" {
		run = s.finalizeSlice
	} else if problem := s.checkSlice(slice, provider); problem != "" {
		s.report.Warn(slice, invalidSliceReason, sendAction, problem)
		return reconcile.Result{}, nil
	}
	wait, err := brake.Wait(run(ctx, slice, provider))
	s.reportProviderError(slice, provider, err)
	return reconcile.Result{RequeueAfter: wait}, err
}

// checkSlice returns the problem of a ResourceSlice that no provider can answer, or an empty string.
func (s *ResourceSlices) checkSlice(slice *auth.ResourceSlice, provider string) string {
	remoteID := slice.Labels[wire.RemoteIDLabel]
	switch {
	case provider == "" || remoteID != provider:
		return fmt.Sprintf("label %s is %q, but namespace %s is not the tenant namespace of that cluster: create the ResourceSlice in namespace %s", wire.RemoteIDLabel, remoteID, slice.Namespace, wire.TenantNamespace(remoteID))
	case slice.Spec.ProviderClusterID != nil && slice.Spec.ProviderClusterID.String() != provider:
		return fmt.Sprintf("spec.providerClusterID is %q, and not %q, the cluster of the namespace: remove the field", *slice.Spec.ProviderClusterID, provider)
	case slice.Spec.ConsumerClusterID != nil && *slice.Spec.ConsumerClusterID != s.options.ClusterID:
		return fmt.Sprintf("spec.consumerClusterID is %q, and not %q, the ID of this cluster: remove the field", *slice.Spec.ConsumerClusterID, s.options.ClusterID)
	}
	return ""
}

// reportProviderError writes an Event about the slice if its provider cannot be reached, or if this cluster does not
// accept what the provider has answered. Details that differ in each attempt are only logged.
func (s *ResourceSlices) reportProviderError(slice *auth.ResourceSlice, provider string, err error) {
	if apierrors.IsInvalid(err) && report.ClassOf(err) != report.Provider {
		s.report.Warn(slice, notSentReason, sendAction, fmt.Sprintf("the answer of provider %s is not valid in this cluster; retrying: %s", provider, err))
		return
	}
	if report.ClassOf(err) != report.Provider || errors.Is(err, context.Canceled) {
		return
	}
	if refused := apierrors.APIStatus(nil); errors.As(err, &refused) {
		s.report.Warn(slice, notSentReason, sendAction, fmt.Sprintf("provider %s refused the request; retrying: %s", provider, refused.Status().Message))
		return
	}
	s.report.Warn(slice, noAccessReason, sendAction, fmt.Sprintf("provider %s does not respond; retrying. The controller manager log has the error", provider))
}

// forget drops what the process remembers about a slice.
func (s *ResourceSlices) forget(key types.NamespacedName) {
	s.remotes.Drop(key)
	s.brake.Forget(key)
	s.report.Clear(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.used, key)
	delete(s.answers, key)
}

// open returns the client for the copy of a slice.
func (s *ResourceSlices) open(slice *auth.ResourceSlice, access remote.Access) (*remote.Remote, error) {
	key := client.ObjectKeyFromObject(slice)
	opened, err := s.remotes.Open(key, access)
	if err != nil {
		return nil, report.Errorf(report.Invalid, "connecting to provider %s of ResourceSlice %s, %w", access.Provider, key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[key] = access
	return opened, nil
}

// reopen returns the client for the copy of a slice that is being deleted, or nil if this cluster has no access. The
// Identity may be gone already.
func (s *ResourceSlices) reopen(ctx context.Context, slice *auth.ResourceSlice, provider string) (*remote.Remote, error) {
	of, err := s.access.controlPlane(ctx, slice.Namespace, provider)
	if of != nil {
		return s.open(slice, of.access)
	}
	s.mu.Lock()
	access, known := s.used[client.ObjectKeyFromObject(slice)]
	s.mu.Unlock()
	if !known {
		return nil, err
	}
	return s.open(slice, access)
}

// sendSlice makes the copy on the provider equal to the slice, and applies the provider's answer.
func (s *ResourceSlices) sendSlice(ctx context.Context, slice *auth.ResourceSlice, provider string) (time.Duration, error) {
	of, err := s.access.controlPlane(ctx, slice.Namespace, provider)
	if err != nil {
		return 0, err
	}
	if of == nil {
		// Package resourcerequest denies slices that were never sent. The watch of Identities triggers the next
		// reconciliation.
		if len(slice.Spec.CSR) > 0 {
			s.report.Warn(slice, notSentReason, sendAction, fmt.Sprintf("Identity %s does not exist in this namespace, or cannot be used (its Events say why), so this cluster cannot access provider %s: peer the clusters (liqoctl peer)", wire.ControlPlaneIdentity(provider), provider))
		}
		return refreshInterval, nil
	}
	if err := s.completeSpec(ctx, slice, provider, of.key); err != nil {
		return 0, err
	}
	opened, err := s.open(slice, of.access)
	if err != nil {
		return refreshInterval, err
	}
	copied, err := s.getCopy(ctx, opened, slice.Name)
	switch {
	case apierrors.IsForbidden(err):
		s.report.Warn(slice, withdrawnReason, sendAction, fmt.Sprintf("provider %s has withdrawn the access of this cluster, as liqoctl drain tenant does: nothing runs there until an administrator of the provider runs liqoctl activate tenant %s",
			provider, s.options.ClusterID))
		return withdrawnRetryInterval, nil
	case err != nil:
		return 0, err
	case copied != nil && !s.isCopy(copied):
		s.report.Warn(slice, notSentReason, sendAction, fmt.Sprintf("ResourceSlice %s/%s exists on provider %s and is not a copy of this one; it was left unchanged: use another name, or delete it there", copied.Namespace, copied.Name, provider))
		return refreshInterval, nil
	}
	// The finalizer is set before the copy is created, so that the copy is deleted together with the original.
	if err := finalizer.Ensure(ctx, s.client, slice, wire.ReplicatorFinalizer, true); err != nil {
		return 0, err
	}
	if copied == nil {
		// An outdated cache must not restore the copy of a slice that is gone.
		if err := fresh.Check(ctx, s.client, s.live, slice); err != nil {
			return refreshInterval, client.IgnoreNotFound(err)
		}
		if err := s.createCopy(ctx, opened, slice); err != nil {
			return 0, err
		}
		return refreshInterval, opened.Watch()
	}
	if err := opened.Watch(); err != nil {
		return 0, err
	}
	if err := s.updateCopy(ctx, opened, slice, copied); err != nil {
		return 0, err
	}
	if followed, err := s.copyStatus(ctx, slice, copied); err != nil || !followed {
		return answerInterval, err
	}
	err = s.applyAnswer(ctx, slice, of)
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		s.report.Warn(slice, refused.reason, refused.action, refused.message)
		return refreshInterval, nil
	}
	if err == nil {
		s.report.Clear(client.ObjectKeyFromObject(slice))
	}
	return refreshInterval, err
}

// completeSpec sets the fields of a slice that its author may leave out, among them the certificate request.
func (s *ResourceSlices) completeSpec(ctx context.Context, slice *auth.ResourceSlice, provider string, key crypto.Signer) error {
	subject := sliceSubject(slice.Name, s.options.ClusterID.String())
	changed := slice.DeepCopy()
	changed.Spec.ConsumerClusterID, changed.Spec.ProviderClusterID = ptr.To(s.options.ClusterID), ptr.To(core.ClusterID(provider))
	if _, err := clientcert.Check(slice.Spec.CSR, subject, key.Public()); err != nil {
		if changed.Spec.CSR, err = clientcert.New(subject, key); err != nil {
			return err
		}
	}
	if equality.Semantic.DeepEqual(slice.Spec, changed.Spec) {
		return nil
	}
	if err := s.client.Patch(ctx, changed, client.MergeFromWithOptions(slice, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("completing ResourceSlice %s, %w", client.ObjectKeyFromObject(slice), err)
	}
	*slice = *changed
	return nil
}

// finalizeSlice deletes the virtual node of a slice, then the copy, and then removes the finalizer of the slice. The
// virtual node is drained first, because the provider refuses the pods of a user without a ResourceSlice. If the
// provider is declared dead, the copy is not deleted.
func (s *ResourceSlices) finalizeSlice(ctx context.Context, slice *auth.ResourceSlice, provider string) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(slice, wire.ReplicatorFinalizer) {
		return refreshInterval, nil
	}
	if err := fresh.Check(ctx, s.client, s.live, slice); err != nil {
		return refreshInterval, client.IgnoreNotFound(err)
	}
	if gone, err := s.removeNode(ctx, slice); err != nil || !gone {
		return refreshInterval, err
	}
	cluster, err := peers.Find(ctx, s.client, provider)
	if err != nil {
		return 0, err
	}
	if !peers.IsDead(cluster) {
		if gone, err := s.removeCopy(ctx, slice, provider); err != nil || !gone {
			return refreshInterval, err
		}
	}
	return refreshInterval, finalizer.Ensure(ctx, s.client, slice, wire.ReplicatorFinalizer, false)
}

// removeNode deletes the virtual node of a slice, and reports whether no virtual node uses its credentials any more.
// Those that others have created are left to them.
func (s *ResourceSlices) removeNode(ctx context.Context, slice *auth.ResourceSlice) (gone bool, err error) {
	nodes := &offloading.VirtualNodeList{}
	if err := s.live.List(ctx, nodes, client.InNamespace(slice.Namespace)); err != nil {
		return false, fmt.Errorf("listing VirtualNodes in %s, %w", slice.Namespace, err)
	}
	gone = true
	for i := range nodes.Items {
		vn, own := &nodes.Items[i], metav1.IsControlledBy(&nodes.Items[i], slice)
		uses := vn.Spec.KubeconfigSecretRef != nil && vn.Spec.KubeconfigSecretRef.Name == kubeconfigSecret(sliceNamePrefix+slice.Name)
		if !own && !uses {
			continue
		}
		gone = false
		switch {
		case vn.DeletionTimestamp != nil:
		case !own:
			s.report.Warn(slice, nodeExistsReason, sendAction, fmt.Sprintf("VirtualNode %s uses the credentials of this ResourceSlice: delete it, so that the request can be withdrawn from provider %s", vn.Name, vn.Spec.ClusterID))
		default:
			if err := s.client.Delete(ctx, vn, client.Preconditions{UID: &vn.UID}); client.IgnoreNotFound(err) != nil {
				return false, fmt.Errorf("deleting VirtualNode %s, %w", client.ObjectKeyFromObject(vn), err)
			}
		}
	}
	return gone, nil
}

// removeCopy deletes the copy of a slice, and reports whether it is gone. A provider that has withdrawn the access of
// this cluster has ended the peering.
func (s *ResourceSlices) removeCopy(ctx context.Context, slice *auth.ResourceSlice, provider string) (gone bool, err error) {
	opened, err := s.reopen(ctx, slice, provider)
	if err != nil {
		return false, err
	}
	if opened == nil {
		s.report.Warn(slice, noAccessReason, sendAction, fmt.Sprintf("the copy at provider %s cannot be deleted, because this cluster has no kubeconfig from Identity %s: peer the clusters again, or annotate the ForeignCluster with %s=true if the provider is lost",
			provider, wire.ControlPlaneIdentity(provider), wire.PermanentlyUnreachableAnnotation))
		return false, nil
	}
	copied, err := s.getCopy(ctx, opened, slice.Name)
	switch {
	case apierrors.IsForbidden(err), err == nil && (copied == nil || !s.isCopy(copied)):
		return true, nil
	case err != nil:
		return false, err
	case copied.DeletionTimestamp != nil:
		return false, opened.Watch()
	}
	if err := opened.Delete(ctx, copied, client.Preconditions{UID: &copied.UID}); client.IgnoreNotFound(err) != nil {
		return false, report.Errorf(report.Provider, "deleting ResourceSlice %s on the provider, %w", client.ObjectKeyFromObject(copied), err)
	}
	// Without finalizers, the copy is gone. Its watch reports the end of one with finalizers.
	return len(copied.Finalizers) == 0, opened.Watch()
}

// Quarantined returns the number of copies that are not restored at the moment.
func (s *ResourceSlices) Quarantined() int { return s.brake.Quarantined() }

// Enforces returns an empty list of the enforced kind, and a filter for the enforced objects. Metrics count them.
func (s *ResourceSlices) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &auth.ResourceSliceList{}, isOutgoing
}

// Register adds the controller to mgr. ctx must be done when the manager stops.
func (s *ResourceSlices) Register(ctx context.Context, mgr manager.Manager) error {
	s.remotes.Bind(ctx)
	// With lanes, a provider that does not respond delays only its own ResourceSlices.
	lanes := workers.NewLanes(report.Failures(s, s.options.Failed))
	if err := mgr.Add(lanes); err != nil {
		return err
	}
	slicesOfNamespace := func(ctx context.Context, object client.Object) []reconcile.Request {
		return offer.RequestsForSlices(ctx, s.client, isOutgoing, client.InNamespace(object.GetNamespace()))
	}
	return builder.ControllerManagedBy(mgr).
		Named(s.Name()).
		WithOptions(workers.Options(1)).
		Watches(&auth.ResourceSlice{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.NewPredicateFuncs(isOutgoing), predicate.Funcs{UpdateFunc: workers.Changed})).
		Watches(&auth.Identity{}, handler.EnqueueRequestsFromMapFunc(slicesOfNamespace)).
		Watches(&offloading.VirtualNode{}, handler.EnqueueRequestsFromMapFunc(slicesOfNamespace), builder.WithPredicates(predicate.Funcs{UpdateFunc: workers.Changed})).
		WatchesRawSource(source.Channel(s.remotes.Events(), &handler.EnqueueRequestForObject{})).
		Complete(lanes)
}
