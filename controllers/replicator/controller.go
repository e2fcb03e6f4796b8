// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package replicator copies NamespaceMaps from a consumer to its providers, and copies their status back.
//
// The copy has the name of the original, in the tenant namespace on the provider. The consumer writes its spec, and
// the provider writes its status. Each provider has its own worker and retries, so an unresponsive provider does not
// delay others.
//
// An entry that disappears from a copy is deleted on the provider with its workloads. Therefore an entry is removed
// only under two conditions. First, this cluster must be known to have requested it. Second, there must be no data in
// the remote namespace, neither in volumes of this cluster's claims (package remotedata), nor in claims that another
// client, such as an operator, has created there. All other entries are kept in the copy and are reported. A consumer
// that has lost its NamespaceMap thus keeps its remote namespaces, and uses them again when it requests them. No entry
// of a copy becomes an entry of the original, because the provider can write any entry into its copy.
package replicator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/brake"
	"github.com/refract-project/refract/controllers/internal/finalizer"
	"github.com/refract-project/refract/controllers/internal/fresh"
	"github.com/refract-project/refract/controllers/internal/peers"
	"github.com/refract-project/refract/controllers/internal/remote"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/internal/apifailure"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/printable"
	"github.com/refract-project/refract/internal/remotedata"
)

// refreshInterval is how often a map is reconciled even without a watch event, to detect new credentials. A longer
// interval delays the detection; a shorter one costs more requests.
const refreshInterval = 5 * time.Minute

// Options are the settings of the controller.
type Options struct {
	// ClusterID is the ID of this cluster, the consumer.
	ClusterID core.ClusterID
	// Observe wraps the client of each provider. It may be nil.
	Observe func(client.Client) client.Client
	// Clock measures the time between two restorations of a copy. If it is nil, the system clock is used.
	Clock clock.PassiveClock
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller replicates NamespaceMaps to providers.
type Controller struct {
	client client.Client
	// live reads Secrets by name, and objects for which the cache may be outdated.
	live    client.Reader
	report  *report.Reporter
	options Options
	// remotes contains a connection to the provider for each NamespaceMap.
	remotes *remote.Pool
	// requests records the remote namespaces that this process has requested.
	requests requests
	// brake limits how often a copy is restored.
	brake *brake.Brake
}

// NewController returns a controller that uses the client c. live must not be cached. It reads the Secrets with the
// providers' kubeconfigs by name.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	reporter := report.New(recorder)
	return &Controller{
		client: c, live: live, report: reporter, options: options,
		remotes: newPool(c.Scheme(), options), brake: newBrake(reporter, options.Clock),
	}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "replicator" }

// The reasons and the action of this controller's Events.
const (
	noAccessReason        = "ProviderNotReachable"
	failedReplicateReason = "FailedReplication"
	notRequestedReason    = "RemoteNamespacesNotRequested"
	replicateAction       = "Replicate"
)

// errForeign is the error for an object on the provider that is not a copy created by this controller.
var errForeign = report.Errorf(report.Foreign, "an object of this name exists there that is not a copy of this one")

// Reconcile replicates the NamespaceMap to the provider, and its status back.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	local := &offloading.NamespaceMap{}
	err := c.client.Get(ctx, request.NamespacedName, local)
	if err != nil && !apierrors.IsNotFound(err) {
		return reconcile.Result{}, fmt.Errorf("getting NamespaceMap %s, %w", request.NamespacedName, err)
	}
	if err != nil || !peers.IsOutgoing(local) {
		c.remotes.Drop(request.NamespacedName)
		c.requests.dropMap(request.NamespacedName)
		c.brake.Forget(request.NamespacedName)
		c.report.Clear(request.NamespacedName)
		return reconcile.Result{}, nil
	}
	wait, err := brake.Wait(c.replicateMap(ctx, local))
	if err != nil {
		c.reportProviderError(local, err)
	}
	return reconcile.Result{RequeueAfter: wait}, err
}

// reportProviderError writes an Event about the map if its provider fails or refuses requests. Details that differ in
// each attempt, such as a port, are only logged.
func (c *Controller) reportProviderError(local *offloading.NamespaceMap, err error) {
	if report.ClassOf(err) != report.Provider || errors.Is(err, context.Canceled) {
		return
	}
	provider := local.Labels[wire.RemoteIDLabel]
	if wrong := (*connection.WrongClusterError)(nil); errors.As(err, &wrong) {
		c.report.Warn(local, noAccessReason, replicateAction, fmt.Sprintf("the API server of provider %s %v", provider, wrong))
		return
	}
	switch {
	case !apifailure.IsAnswered(err):
		c.report.Warn(local, noAccessReason, replicateAction, fmt.Sprintf(
			"provider %s does not respond; retrying. The controller manager log has the error", provider))
	// The next attempt may succeed.
	case apifailure.IsUndecided(err), apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
	default:
		c.report.Warn(local, failedReplicateReason, replicateAction, fmt.Sprintf("provider %s refused the request; retrying: %s", provider, err))
	}
}

// replicateMap replicates the map, and returns the delay until it must be replicated again.
func (c *Controller) replicateMap(ctx context.Context, local *offloading.NamespaceMap) (wait time.Duration, err error) {
	if local.DeletionTimestamp != nil {
		return c.finalizeMap(ctx, local)
	}
	r, err := c.connectProvider(ctx, local)
	if err != nil {
		return 0, err
	}
	copied, err := r.getCopy(ctx, local.Name)
	if err != nil {
		return 0, err
	}
	if copied != nil && !r.isCopy(copied) {
		c.report.Warn(local, failedReplicateReason, replicateAction, fmt.Sprintf(
			"NamespaceMap %s/%s exists on the provider and is not a copy of this one; it was left unchanged: delete it there", copied.Namespace, copied.Name))
		return 0, fmt.Errorf("replicating NamespaceMap %s, %w", client.ObjectKeyFromObject(local), errForeign)
	}
	// The finalizer is set before the copy is created, so that the copy is deleted together with the original.
	if err := finalizer.Ensure(ctx, c.client, local, wire.ReplicatorFinalizer, true); err != nil {
		return 0, err
	}
	key := client.ObjectKeyFromObject(local)
	if copied == nil {
		if err := r.createCopy(ctx, local); err != nil {
			return 0, err
		}
		c.requests.recordSent(key, local, local.Spec)
		return refreshInterval, nil
	}
	desired, others := c.requests.mergeEntries(key, local, copied)
	held, err := c.holdData(ctx, r, local, copied, &desired)
	if err != nil {
		return 0, err
	}
	var updateErr error
	if copied.DeletionTimestamp == nil {
		updateErr = r.updateCopy(ctx, local, desired, copied)
	}
	if updateErr != nil {
		// The provider's status is copied even if the provider refuses the spec, or another client reverts it.
		return 0, errors.Join(updateErr, c.copyStatus(ctx, local, copied))
	}
	c.requests.recordSent(key, local, desired)
	if len(others) > 0 {
		c.report.Warn(local, notRequestedReason, replicateAction, describeOthers(local, copied, others))
	}
	if held {
		return remotedata.MaxRecheckInterval, c.copyStatus(ctx, local, copied)
	}
	if len(others) == 0 {
		c.report.Clear(key)
	}
	return refreshInterval, c.copyStatus(ctx, local, copied)
}

// connectProvider returns a client for the copies on the map's provider. If this fails, it writes an Event about the
// map.
func (c *Controller) connectProvider(ctx context.Context, local *offloading.NamespaceMap) (copies, error) {
	access, err := c.readAccess(ctx, local)
	if err != nil {
		c.report.Warn(local, noAccessReason, replicateAction, err.Error())
		return copies{}, err
	}
	key := client.ObjectKeyFromObject(local)
	provider, err := c.remotes.Open(key, access)
	if err != nil {
		return copies{}, report.Errorf(report.Invalid, "connecting to the provider of NamespaceMap %s, %w", key, err)
	}
	return copies{provider, c.options.ClusterID, c.brake.In(provider.Namespace, provider)}, provider.Watch()
}

// copyStatus copies the provider's status to the local map if it differs.
func (c *Controller) copyStatus(ctx context.Context, local, copied *offloading.NamespaceMap) error {
	answered := statusFrom(local, copied)
	if equality.Semantic.DeepEqual(local.Status, answered) {
		return nil
	}
	changed := local.DeepCopy()
	changed.Status = answered
	err := c.client.Status().Patch(ctx, changed, client.MergeFrom(local))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing status of NamespaceMap %s, %w", client.ObjectKeyFromObject(local), err)
	}
	return nil
}

// statusFrom returns the status of entries that this cluster requests or has requested. It drops the status of other
// entries, because a provider must not offload namespaces on its own. The provider's messages are sanitized and
// shortened.
func statusFrom(local, copied *offloading.NamespaceMap) offloading.NamespaceMapStatus {
	status := *copied.Status.DeepCopy()
	maps.DeleteFunc(status.CurrentMapping, func(namespace string, s offloading.RemoteNamespaceStatus) bool {
		if asked, ok := local.Spec.DesiredMapping[namespace]; ok {
			return asked != s.RemoteNamespace
		}
		known, ok := local.Status.CurrentMapping[namespace]
		return !ok || known.RemoteNamespace != s.RemoteNamespace
	})
	for namespace, s := range status.CurrentMapping {
		s.Message = printable.Shorten(printable.Line(s.Message), offloading.MaxMappingMessage)
		status.CurrentMapping[namespace] = s
	}
	if len(status.CurrentMapping) == 0 {
		status.CurrentMapping = nil
	}
	return status
}

// finalizeMap deletes the copy, then removes the finalizer of the original. If remote namespaces contain data of this
// cluster's volumes, their entries are kept in the copy, and a new NamespaceMap adopts them. If the provider is
// declared dead, the copy is not deleted. While claims that were created on the provider contain data, the finalizer is
// kept, because without the original nobody could confirm the deletion of this data. finalizeMap returns the delay
// until the next attempt.
func (c *Controller) finalizeMap(ctx context.Context, local *offloading.NamespaceMap) (wait time.Duration, err error) {
	if !controllerutil.ContainsFinalizer(local, wire.ReplicatorFinalizer) {
		return refreshInterval, nil
	}
	if err := fresh.Check(ctx, c.client, c.live, local); err != nil {
		return refreshInterval, client.IgnoreNotFound(err)
	}
	cluster, err := peers.Find(ctx, c.client, local.Labels[wire.RemoteIDLabel])
	if err != nil {
		return 0, err
	}
	if !peers.IsDead(cluster) {
		r, err := c.connectProvider(ctx, local)
		if err != nil {
			return 0, err
		}
		kept, err := c.keepData(ctx, local, r)
		if err != nil {
			return 0, err
		}
		if gone, err := r.removeCopy(ctx, local, kept.entries); err != nil || !gone {
			// The deletion of the copy triggers the next reconciliation.
			return refreshInterval, err
		}
		if len(kept.claims) > 0 {
			return remotedata.MaxRecheckInterval, nil
		}
	}
	return refreshInterval, finalizer.Ensure(ctx, c.client, local, wire.ReplicatorFinalizer, false)
}

// Quarantined returns the number of copies that are not restored at the moment.
func (c *Controller) Quarantined() int { return c.brake.Quarantined() }

// Enforces returns an empty list of the enforced kind and a filter for the NamespaceMaps that are sent to providers.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &offloading.NamespaceMapList{}, peers.IsOutgoing
}

// Register adds the controller to mgr. ctx must be done when the manager stops.
func (c *Controller) Register(ctx context.Context, mgr manager.Manager) error {
	return c.setUpWatches(ctx, mgr)
}
