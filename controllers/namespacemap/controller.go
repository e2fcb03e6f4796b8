// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package namespacemap creates, on the provider, the remote namespaces of the namespaces that a consumer offloads.
//
// A consumer writes its NamespaceMap into its tenant namespace. For every requested mapping the controller creates a
// namespace, annotated as created for this map, and in it a RoleBinding for the consumer. A namespace of that name
// without the annotation, or with the annotation of another namespace of the consumer, has another owner: it is
// neither used nor deleted.
//
// A remote namespace contains workloads. It is deleted only when its own mapping, which was accepted before, is removed
// from the map, or when the map itself is deleted. The consumer does not remove a mapping whose data it needs (package
// remotedata), but another client may delete the map or its tenant namespace. Namespaces with bound claims whose
// mappings are still in the map then stay until they are deleted manually or a new map uses them again.
package namespacemap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
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
	"github.com/refract-project/refract/controllers/internal/memo"
	"github.com/refract-project/refract/controllers/internal/objectcounts"
	"github.com/refract-project/refract/controllers/internal/report"
	"github.com/refract-project/refract/controllers/internal/tenancy"
	"github.com/refract-project/refract/internal/ipmap"
	"github.com/refract-project/refract/internal/tenantlimits"
)

// Options are the settings of the controller.
type Options struct {
	// Workers is the number of NamespaceMaps that are reconciled at the same time.
	Workers int
	// ClusterID is the ID of this cluster, the provider. If it is empty, maps with any name are accepted.
	ClusterID core.ClusterID
	// RemoteClusterRole is the ClusterRole that consumers get in their remote namespaces.
	RemoteClusterRole string
	// Tenancy contains this cluster's rules for its consumers.
	Tenancy tenancy.Options
	// OwnRanges returns the ranges of this cluster, which the pods of consumers must not reach, or an error as long as
	// the ranges are unknown. FollowOwnRanges registers a function that is called after the ranges have changed.
	// FollowOwnRanges may be nil.
	OwnRanges       func() (ipmap.Ranges, error)
	FollowOwnRanges func(f func())
	// RangesOfOthers returns the ranges by which this cluster reaches the clusters that are not the given consumer, or an error as long as
	// they are unknown. The pods of the consumer must not reach them. FollowRangesOfOthers registers a function that is called after a
	// result has changed. FollowRangesOfOthers may be nil.
	RangesOfOthers       func(ctx context.Context, consumer string) (ipmap.Ranges, error)
	FollowRangesOfOthers func(f func())
	// RangesOf maps a consumer's ID to the ranges that its pods may always reach, which are the ranges of the network
	// between the clusters.
	RangesOf map[string]ipmap.Ranges
	// LimitRange contains the limits of the LimitRange in the namespaces of consumers. If it is empty, no LimitRange is
	// created.
	LimitRange []corev1.LimitRangeItem
	// ObjectCounts is the maximum number of objects of each kind in a remote namespace, keyed by resources such as
	// count/secrets. Other kinds are not limited. Limits for kinds in tenant namespaces are ignored.
	ObjectCounts corev1.ResourceList
	// DefaultObjectCount is the maximum number of objects of each other kind that a consumer may create in a remote
	// namespace; 0 means no limit.
	DefaultObjectCount int64
	// LimitNewNamespace limits the objects of a consumer in a new remote namespace. It may be nil.
	LimitNewNamespace func(ctx context.Context, consumer, namespace string) error
	// RegrantDelay is how often the permissions of consumers are read for DefaultObjectCount; 0 means 10 minutes.
	RegrantDelay time.Duration
	// RecountDelay is how long a limit is left out of a ResourceQuota because this cluster does not count the limited
	// kind yet; 0 means 2 minutes.
	RecountDelay time.Duration
	// Installation is the namespace of this controller. Consumers cannot use it as a remote namespace.
	Installation string
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller creates the remote namespaces of NamespaceMaps.
type Controller struct {
	client   client.Client
	uncached client.Reader
	report   *report.Reporter
	options  Options
	counts   *objectcounts.Counts

	// incomplete contains the remote namespaces with pods that have no egress.
	incomplete  memo.Memo[bool]
	complements complements
	// granted contains, for each remote namespace, the limits for the other kinds that consumers have been granted
	// permissions for.
	granted memo.Memo[grantedCounts]
	grants  *clusterGrants
}

// NewController returns a controller that uses the client c. live must not use a cache, because it also reads
// namespaces that are not remote namespaces of consumers.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	counts := objectcounts.New(c, objectcounts.Options{
		Limits: remoteCounts(options.ObjectCounts), RecountDelay: options.RecountDelay,
	})
	created := &Controller{
		client: c, uncached: live, report: report.New(recorder), options: options, counts: counts,
		complements: complements{compute: newComplement},
	}
	created.grants = &clusterGrants{live: live, age: min(maxGrantsAge, created.regrantDelay())}
	return created
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "namespacemap" }

// Reasons and action of the Events of this controller.
const (
	missingOriginReason         = "MissingOrigin"
	foreignOriginReason         = "ForeignOrigin"
	wrongNameReason             = "WrongName"
	failedRemoteNamespaceReason = "FailedCreateNamespace"
	failedDeleteReason          = "FailedDeleteNamespace"
	leftBehindReason            = "NamespaceLeftBehind"
	invalidLimitsReason         = "InvalidLimits"
	mapAction                   = "MapNamespaces"
)

// Reconcile creates, updates and deletes the remote namespaces of the NamespaceMap.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	wait, err := brake.Wait(c.reconcileMap(ctx, request))
	return reconcile.Result{RequeueAfter: wait}, err
}

// reconcileMap does the work of Reconcile, and returns the delay until the next reconciliation.
func (c *Controller) reconcileMap(ctx context.Context, request reconcile.Request) (time.Duration, error) {
	nm := &offloading.NamespaceMap{}
	err := c.client.Get(ctx, request.NamespacedName, nm)
	switch {
	case apierrors.IsNotFound(err):
		c.report.Clear(request.NamespacedName)
		return 0, c.revokeOrphans(ctx, request.Namespace)
	case err != nil:
		return 0, fmt.Errorf("getting NamespaceMap %s, %w", request.NamespacedName, err)
	case !isReplicated(nm):
		return 0, c.revokeOrphans(ctx, request.Namespace)
	}
	if trusted, err := c.checkOrigin(ctx, nm); err != nil || !trusted {
		if err == nil {
			err = c.revokeOrphans(ctx, nm.Namespace)
		}
		return 0, err
	}
	if nm.DeletionTimestamp != nil {
		return 0, c.finalize(ctx, nm)
	}
	if id := c.options.ClusterID.String(); id != "" && nm.Name != id {
		// Only one map is accepted, because a consumer could otherwise exceed its maximum number of namespaces with
		// several maps.
		c.report.Warn(nm, wrongNameReason, mapAction, fmt.Sprintf(
			"this NamespaceMap is ignored: a consumer has exactly one, named after the cluster ID of this provider (%s). Add the namespaces to that one and delete this one", id))
		return 0, nil
	}
	err = c.realize(ctx, nm)
	return c.recountAfter(nm), err
}

func isReplicated(nm client.Object) bool {
	labels := nm.GetLabels()
	_, hasOrigin := labels[wire.OriginIDLabel]
	return hasOrigin && labels[wire.ReplicatedLabel] == "true"
}

// checkOrigin refuses a map if the consumer in its labels is not the owner of the tenant namespace, because consumers
// write these labels themselves.
func (c *Controller) checkOrigin(ctx context.Context, nm *offloading.NamespaceMap) (bool, error) {
	origin := nm.Labels[wire.OriginIDLabel]
	if origin == "" {
		c.report.Warn(nm, missingOriginReason, mapAction, fmt.Sprintf(
			"label %s is empty: set it to the consumer's cluster id", wire.OriginIDLabel))
		return false, nil
	}
	tenant := &corev1.Namespace{}
	if err := c.uncached.Get(ctx, client.ObjectKey{Name: nm.Namespace}, tenant); err != nil {
		return false, fmt.Errorf("getting tenant namespace %s, %w", nm.Namespace, err)
	}
	switch id := tenant.Labels[wire.RemoteClusterIDLabel]; id {
	case origin:
		return true, nil
	case "":
		c.report.Warn(nm, foreignOriginReason, mapAction, fmt.Sprintf(
			"namespace %s is not a tenant namespace, so no namespace is created for this map: if it belongs to the consumer %s, label it %s=%s", nm.Namespace, origin, wire.RemoteClusterIDLabel, origin))
	default:
		c.report.Warn(nm, foreignOriginReason, mapAction, fmt.Sprintf(
			"label %s says %s, but the namespace %s belongs to the consumer %s: no namespace is created for it", wire.OriginIDLabel, origin, nm.Namespace, id))
	}
	return false, nil
}

// realize creates the desired namespaces, deletes the namespaces that are no longer desired, and writes the status.
func (c *Controller) realize(ctx context.Context, nm *offloading.NamespaceMap) error {
	if err := finalizer.Ensure(ctx, c.client, nm, wire.NamespaceMapFinalizer, true); err != nil {
		return err
	}
	limits, err := c.limitsOf(ctx, nm)
	if err != nil {
		return err
	}
	owned, err := c.remoteNamespaces(ctx, nm)
	if err != nil {
		return err
	}
	if err := c.announce(ctx, nm, limits, owned); err != nil {
		return err
	}
	current := map[string]offloading.RemoteNamespaceStatus{}
	var problems []error
	count := countNamespaces(nm, owned)
	for _, local := range slices.Sorted(maps.Keys(nm.Spec.DesiredMapping)) {
		remoteNamespace := nm.Spec.DesiredMapping[local]
		status, has := nm.Status.CurrentMapping[local]
		if has && status.RemoteNamespace != remoteNamespace {
			status, err := c.rename(ctx, nm, local, status)
			problems = append(problems, err)
			current[local] = status
			continue
		}
		if maximum := maxNamespaces(limits); !owned.Has(remoteNamespace) && (!has || isFailed(status)) {
			if count++; count > maximum {
				current[local] = c.refuse(nm, remoteNamespace,
					"namespace %s, for %s, is not created: this consumer has reached its limit of %d namespaces, including those being deleted; unoffload another one, or ask an administrator of this cluster to raise tenants.%s or the consumer's limit %s",
					remoteNamespace, local, maximum, tenantlimits.MaxNamespaces.Value(), tenantlimits.MaxNamespaces.Name)
				continue
			}
		}
		status, err := c.ensureRemoteNamespace(ctx, nm, limits, local, remoteNamespace)
		problems = append(problems, err)
		current[local] = status
	}
	problems = append(problems, c.removeRemoteNamespaces(ctx, nm, current))
	leftBehind := c.reportLeftBehind(nm, current, owned)
	err = errors.Join(problems...)
	if err == nil && !limits.invalid && !leftBehind && !slices.ContainsFunc(slices.Collect(maps.Values(current)), c.isReported) {
		c.report.Clear(client.ObjectKeyFromObject(nm))
	}
	return errors.Join(err, c.writeStatus(ctx, nm, current))
}

// rename deletes the previous remote namespace of a mapping whose name was changed, because the consumer has withdrawn
// it. The status contains the previous name until the namespace is gone, so that it is not forgotten. Only then is the
// new namespace requested.
func (c *Controller) rename(ctx context.Context, nm *offloading.NamespaceMap, local string, status offloading.RemoteNamespaceStatus) (offloading.RemoteNamespaceStatus, error) {
	gone, err := c.deleteRemoteNamespace(ctx, nm, local, status.RemoteNamespace)
	if !gone {
		status.Phase = offloading.MappingTerminating
		return status, err
	}
	// The update of the status triggers the next reconciliation. It announces the new namespace only if the limit
	// permits this.
	return offloading.RemoteNamespaceStatus{RemoteNamespace: nm.Spec.DesiredMapping[local], Phase: offloading.MappingCreationLoopBackOff}, err
}

// announce records the remote namespaces that are about to be created in the status, without a phase. If such a
// namespace is no longer desired after its creation, it is found in the status and deleted. The write fails, and
// nothing is created, if the desired mapping has changed in the meantime.
func (c *Controller) announce(ctx context.Context, nm *offloading.NamespaceMap, limits consumerLimits, owned sets.Set[string]) error {
	left := maxNamespaces(limits) - countNamespaces(nm, owned)
	announced := maps.Clone(nm.Status.CurrentMapping)
	for _, local := range slices.Sorted(maps.Keys(nm.Spec.DesiredMapping)) {
		if _, has := announced[local]; !has && left > 0 {
			announced = withEntry(announced, local, nm.Spec.DesiredMapping[local])
			left--
		}
	}
	return c.writeStatus(ctx, nm, announced)
}

func isFailed(s offloading.RemoteNamespaceStatus) bool {
	return s.Phase == offloading.MappingCreationLoopBackOff
}

// isReported reports whether an Event about the remote namespace was written on the map and still applies.
func (c *Controller) isReported(s offloading.RemoteNamespaceStatus) bool {
	_, incomplete := c.incomplete.Get(types.NamespacedName{Name: s.RemoteNamespace})
	granted, _ := c.granted.Get(types.NamespacedName{Name: s.RemoteNamespace})
	return incomplete || len(granted.uncountable) > 0 || isFailed(s)
}

// removeRemoteNamespaces deletes the remote namespaces that are in the status and are no longer desired. It keeps the
// entries of namespaces that still exist in current.
func (c *Controller) removeRemoteNamespaces(ctx context.Context, nm *offloading.NamespaceMap, current map[string]offloading.RemoteNamespaceStatus) error {
	var problems []error
	for _, local := range slices.Sorted(maps.Keys(nm.Status.CurrentMapping)) {
		status := nm.Status.CurrentMapping[local]
		if _, ok := nm.Spec.DesiredMapping[local]; ok {
			continue
		}
		gone, err := c.deleteRemoteNamespace(ctx, nm, local, status.RemoteNamespace)
		problems = append(problems, err)
		if !gone {
			status.Phase = offloading.MappingTerminating
			current[local] = status
		}
	}
	return errors.Join(problems...)
}

// finalize deletes the remote namespaces of a map that is being deleted, and then removes the finalizer. Namespaces
// with data are kept if the consumer has not withdrawn them.
func (c *Controller) finalize(ctx context.Context, nm *offloading.NamespaceMap) error {
	if !controllerutil.ContainsFinalizer(nm, wire.NamespaceMapFinalizer) {
		return nil
	}
	if err := fresh.Check(ctx, c.client, c.uncached, nm); err != nil {
		return client.IgnoreNotFound(err)
	}
	withdrawn := nm.DeepCopy()
	for local, remoteNamespace := range nm.Spec.DesiredMapping {
		if _, ok := withdrawn.Status.CurrentMapping[local]; !ok {
			// The namespace was created, but is not in the status yet.
			withdrawn.Status.CurrentMapping = withEntry(withdrawn.Status.CurrentMapping, local, remoteNamespace)
		}
		kept, err := c.keepsData(ctx, nm, local, withdrawn.Status.CurrentMapping[local].RemoteNamespace)
		if err != nil {
			return err
		}
		if kept {
			delete(withdrawn.Status.CurrentMapping, local)
		}
	}
	withdrawn.Spec.DesiredMapping = nil
	current := map[string]offloading.RemoteNamespaceStatus{}
	err := c.removeRemoteNamespaces(ctx, withdrawn, current)
	if err := errors.Join(err, c.writeStatus(ctx, nm, current)); err != nil || len(current) > 0 {
		return err // the deletion of each namespace triggers another reconciliation
	}
	return finalizer.Ensure(ctx, c.client, nm, wire.NamespaceMapFinalizer, false)
}

func withEntry(m map[string]offloading.RemoteNamespaceStatus, local, remoteNamespace string) map[string]offloading.RemoteNamespaceStatus {
	if m == nil {
		m = map[string]offloading.RemoteNamespaceStatus{}
	}
	m[local] = offloading.RemoteNamespaceStatus{RemoteNamespace: remoteNamespace}
	return m
}

func (c *Controller) writeStatus(ctx context.Context, nm *offloading.NamespaceMap, current map[string]offloading.RemoteNamespaceStatus) error {
	if equality.Semantic.DeepEqual(nm.Status.CurrentMapping, current) {
		return nil
	}
	changed := nm.DeepCopy()
	changed.Status.CurrentMapping = current
	err := c.client.Status().Patch(ctx, changed, client.MergeFromWithOptions(nm, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("writing status of NamespaceMap %s, %w", client.ObjectKeyFromObject(nm), err)
	}
	nm.ResourceVersion, nm.Status.CurrentMapping = changed.ResourceVersion, current
	return nil
}

// Enforces returns an empty list of the enforced kind, and a filter for the NamespaceMaps of consumers.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &offloading.NamespaceMapList{}, isReplicated
}

// Quarantined returns the number of objects that are restored only every few seconds, because another client keeps
// changing them.
func (c *Controller) Quarantined() int { return brake.Quarantined(c.client) }

// Register adds the controller to mgr.
func (c *Controller) Register(_ context.Context, mgr manager.Manager) error {
	return c.watch(mgr)
}
