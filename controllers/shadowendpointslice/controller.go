// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package shadowendpointslice enforces, on the provider, the endpoints requested by consumers.
//
// The EndpointSlice created from a ShadowEndpointSlice has its name and content, with two changes. First, the addresses
// are replaced by addresses that this cluster can reach: either through the consumer or, if so specified, directly in a
// third cluster. As long as these addresses are unknown, the EndpointSlice is left unchanged. Second, an endpoint is
// ready only while its cluster is reachable. When the consumer fails, Services of this cluster stop sending traffic to
// it until it is reachable again. A cluster without a ForeignCluster counts as unreachable. Endpoints that the consumer
// marks as not ready stay not ready. An EndpointSlice with another owner is never changed.
package shadowendpointslice

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/brake"
	"github.com/refract-project/refract/controllers/internal/memo"
	"github.com/refract-project/refract/controllers/internal/networks"
	"github.com/refract-project/refract/controllers/internal/ownranges"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/shadows"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/internal/dynamicclient"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/internal/tenantlimits"
)

const kind shadows.Kind = offloading.ShadowEndpointSliceKind

// AddressMapper maps the addresses of other clusters to the addresses that the pods of this cluster use for them. For
// the errors, see package networks.
type AddressMapper interface {
	// MapAddress returns the address that this cluster uses to reach address in the given cluster.
	MapAddress(ctx context.Context, cluster, address string) (string, error)
	// MapOwn maps an address as MapAddress does, but fails if the address is in no range of the given cluster.
	MapOwn(ctx context.Context, cluster, address string) (string, error)
	// MapPod maps an address as MapAddress does, but fails if the address does not belong to a pod of the given
	// cluster.
	MapPod(ctx context.Context, cluster, address string) (string, error)
	// Follow registers f. f is called when the mapping of a cluster's addresses may have changed.
	Follow(f func(cluster string))
}

// Options are the settings of the controller.
type Options struct {
	// Workers is the number of ShadowEndpointSlices that are reconciled at the same time.
	Workers int
	// AddressMapper maps the addresses of endpoints. If it is nil, they are not mapped.
	AddressMapper AddressMapper
	// DenyDirectConnections leaves out the endpoints in a third cluster that this cluster would have to reach directly
	// instead of through the consumer.
	DenyDirectConnections bool
	// OwnRanges returns the ranges of this cluster's pods, Services and nodes, or an error as long as they are unknown.
	// Endpoints of consumers must not be in these ranges. FollowOwnRanges registers a function that is called when the
	// ranges have changed. FollowOwnRanges may be nil.
	OwnRanges       func() (ipmap.Ranges, error)
	FollowOwnRanges func(f func())
	// Limits apply to all consumers.
	Limits tenantlimits.Limits
	// RangesOf contains the address ranges of each consumer. A consumer without an entry may use the ranges in its
	// limits or, if there are none, the ranges of the network between the clusters.
	RangesOf map[string]ipmap.Ranges
	// Policy restricts the objects of consumers. If it is nil, everything is allowed.
	Policy *tenancy.Policy
	// Clock returns the time. If it is nil, the real time is used.
	Clock clock.PassiveClock
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller creates and updates the EndpointSlices of ShadowEndpointSlices.
type Controller struct {
	client   client.Client
	uncached client.Reader
	report   *report.Reporter
	options  Options

	// refused contains, for each slice, the fields that the API server stores with other values than those that were
	// sent.
	refused memo.Memo[serverChanges]
	// invalid counts how often the API server has rejected a slice.
	invalid report.Refusals
	// gone tracks deleted ShadowEndpointSlices.
	gone *shadows.Gone
	// brake slows down conflicts with other clients that write EndpointSlices.
	brake *brake.Brake
}

// NewController returns a controller that uses the client c. The cache of c must be created with CacheOptions. live
// must not use a cache.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	reporter := report.New(recorder)
	return &Controller{client: c, uncached: live, report: reporter, options: options, gone: shadows.NewGone(kind, live), brake: brake.New(newSlice().GroupVersionKind(), live, reporter, options.Clock)}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "shadowendpointslice" }

// Reasons and actions of the Events of this controller.
const (
	missingForeignClusterReason = "ForeignClusterNotFound"
	directConnectionsReason     = "InvalidDirectConnections"
	notConnectedReason          = "NoDirectConnection"
	forbiddenAddressReason      = "ForbiddenAddress"
	foreignOriginReason         = "ForeignOrigin"
	unknownRangesReason         = "RangesUnknown"
	unknownNetworkReason        = "NetworkNotConnected"
	incompleteNetworkReason     = "NetworkNotConfigured"
	tooLargeReason              = "TooLarge"
	failedCreateReason          = "FailedCreateEndpointSlice"
	failedUpdateReason          = "FailedUpdateEndpointSlice"
	refusedReason               = "RefusedByProvider"

	forgeAction  = "ForgeEndpointSlice"
	createAction = "CreateEndpointSlice"
	updateAction = "UpdateEndpointSlice"
)

// Reconcile creates or updates the EndpointSlice of the ShadowEndpointSlice.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	shadow := kind.New()
	err := c.client.Get(ctx, request.NamespacedName, shadow)
	if apierrors.IsNotFound(err) {
		c.dropRecords(request.NamespacedName)
		wait, err := c.deleteOrphan(ctx, request.NamespacedName)
		return reconcile.Result{RequeueAfter: wait}, err
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("getting ShadowEndpointSlice %s, %w", request.NamespacedName, err)
	}
	if shadow.GetDeletionTimestamp() != nil {
		var wait time.Duration
		if shadows.WaitsForDependents(shadow) {
			wait, err = c.deleteDependent(ctx, shadow)
		}
		return reconcile.Result{RequeueAfter: wait}, err
	}
	if shadow, err = kind.Whole(ctx, c.uncached, shadow); err != nil || shadow == nil {
		return reconcile.Result{}, err
	}
	if excess := dynamicclient.Excess(shadow); excess != "" {
		c.report.Warn(shadow, tooLargeReason, forgeAction, fmt.Sprintf("the EndpointSlice was left unchanged: %s; divide it into several", excess))
		return reconcile.Result{}, nil
	}
	wait, err := brake.Wait(0, c.enforceSlice(ctx, shadow))
	return reconcile.Result{RequeueAfter: wait}, err
}

func (c *Controller) dropRecords(key types.NamespacedName) {
	c.clearRefusals(key)
	c.brake.Forget(key)
	c.report.Clear(key)
}

// enforceSlice writes the EndpointSlice of shadow. It must not change shadow, which is shared with the cache.
func (c *Controller) enforceSlice(ctx context.Context, shadow *unstructured.Unstructured) error {
	origin := shadow.GetLabels()[wire.OriginLabel]
	if origin == "" {
		c.report.Warn(shadow, shadows.MissingOriginReason, forgeAction, fmt.Sprintf(
			"label %s is missing, so the cluster of these endpoints is unknown: set it to the consumer's cluster id", wire.OriginLabel))
		return nil
	}
	namespace := &corev1.Namespace{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: shadow.GetNamespace()}, namespace); err != nil {
		return fmt.Errorf("getting Namespace %s, %w", shadow.GetNamespace(), err)
	}
	if refusal := tenancy.CheckNamespace(namespace, origin); refusal != nil {
		c.report.Warn(shadow, foreignOriginReason, forgeAction, refusal.Error())
		// A change to the ShadowEndpointSlice or the namespace triggers the next attempt.
		return nil
	}
	state, err := c.stateOf(ctx, origin)
	if err != nil {
		return err
	}
	allowed, err := c.allowanceOf(ctx, namespace, origin)
	if err != nil {
		return c.reportUnknownRanges(shadow, err)
	}
	desired, problems, err := c.forgeSlice(ctx, shadow, origin, state, allowed)
	switch {
	case errors.Is(err, errMalformed):
		c.report.Warn(shadow, failedUpdateReason, forgeAction, err.Error())
		// The refusal is reported to the user. A change to the ShadowEndpointSlice triggers the next attempt.
		return nil
	case err != nil:
		c.reportUnmapped(shadow, err)
		return fmt.Errorf("forging EndpointSlice %s, %w", client.ObjectKeyFromObject(shadow), err)
	}
	refusal, err := c.dropDenied(ctx, desired)
	if err != nil {
		return err
	}
	if refusal != nil {
		problems = append(problems, problem{refusedReason, "the EndpointSlice is created without what is denied: " + refusal.Error()})
	}
	setRecord(desired)
	if err := c.applySlice(ctx, shadow, desired); err != nil {
		return err
	}
	c.reportProblems(shadow, problems)
	return nil
}

// reportUnknownRanges reports that the permitted addresses of the consumer are unknown. The EndpointSlice stays
// unchanged.
func (c *Controller) reportUnknownRanges(shadow *unstructured.Unstructured, err error) error {
	if !errors.Is(err, ownranges.ErrNotRead) {
		c.report.Warn(shadow, unknownRangesReason, forgeAction, err.Error()+"; the EndpointSlice was left unchanged")
	}
	return fmt.Errorf("determining the allowed addresses of ShadowEndpointSlice %s, %w", client.ObjectKeyFromObject(shadow), err)
}

// reportUnmapped reports that an address cannot be mapped. The EndpointSlice stays unchanged.
func (c *Controller) reportUnmapped(shadow *unstructured.Unstructured, err error) {
	reason := incompleteNetworkReason
	switch {
	case errors.Is(err, networks.ErrNotYet):
		// The mapping is unknown only for a moment, so nothing is reported.
		return
	case errors.Is(err, networks.ErrUnknown):
		reason = unknownNetworkReason
	}
	c.report.Warn(shadow, reason, forgeAction, err.Error()+"; the EndpointSlice was left unchanged")
}

// problem describes a problem with some endpoints of a slice. The slice is still written, but these endpoints are left
// out or not ready.
type problem struct{ reason, note string }

func (c *Controller) reportProblems(shadow *unstructured.Unstructured, problems []problem) {
	for _, p := range problems {
		c.report.Warn(shadow, p.reason, forgeAction, p.note)
		return
	}
	if _, refused := c.refused.Get(client.ObjectKeyFromObject(shadow)); !refused {
		c.report.Clear(client.ObjectKeyFromObject(shadow))
	}
}

// Enforces returns an empty list of the enforced kind, and a filter for the ShadowEndpointSlices that are enforced.
// Both are used for metrics.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return kind.NewList(), func(client.Object) bool { return true }
}

// Quarantined returns the number of EndpointSlices that are left unchanged for a while because of conflicts with
// another client.
func (c *Controller) Quarantined() int { return c.brake.Quarantined() }

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	return c.setUpWatches(mgr)
}
