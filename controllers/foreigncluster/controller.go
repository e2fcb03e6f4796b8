// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package foreigncluster tracks the clusters that this one is peered with, and whether they are reachable.
//
// There is a ForeignCluster for every cluster that has a tenant namespace or a VirtualNode here. Its condition
// APIServerStatus reports whether the API server of that cluster is available. A provider is probed with the kubeconfig
// that this cluster has for it. A consumer usually provides no kubeconfig, and is often not reachable behind NAT;
// instead it renews a Lease in its tenant namespace, and the clock of this cluster determines whether the Lease is
// still valid. The condition NetworkStatus reports whether addresses of the other cluster are reachable, if this is
// checked (see networkOf). Other controllers use both conditions, for example for the readiness of endpoints and
// virtual nodes.
//
// Parts of the status that cannot be determined are left unchanged: the conditions of other writers, and the whole
// status if an input cannot be read.
package foreigncluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	nodeutil "k8s.io/component-helpers/node/util"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/metrics"
	"github.com/refract-project/refract/controllers/internal/peers"
	"github.com/refract-project/refract/controllers/internal/report"
)

// Options are the settings of the controller.
type Options struct {
	// ClusterID is the ID of this cluster.
	ClusterID string
	// Workers is the number of ForeignClusters that are reconciled at the same time.
	Workers int
	// PingInterval is how often API servers are probed. If it is 0, they are not probed, and count as healthy.
	PingInterval time.Duration
	// PingTimeout limits one probe.
	PingTimeout time.Duration
	// RefreshInterval is how often a status is determined even if no watch event arrives; 0 means 10 seconds. With a
	// longer interval than maxReadGap, measurements of networks do not become stale.
	RefreshInterval time.Duration
	// Clock returns the time.
	Clock clock.WithTicker
	// Observed is called whenever the state of a cluster has been determined. It may be nil.
	Observed func(cluster string, state metrics.Peer)
	// Failed is called with each reconciliation error. It may be nil.
	Failed func(error)
}

// Controller maintains the ForeignClusters of the peered clusters.
type Controller struct {
	client client.Client
	// live does not use the cache. It reads Secrets by name, PeerNetworks and Connections.
	live   client.Reader
	report *report.Reporter
	// tenants only reports the number of tenant namespaces. It is separate, so that clearing this report does not clear
	// others.
	tenants *report.Reporter
	// expiry only reports the expiry of credentials.
	expiry  *report.Reporter
	options Options
	probes  *probes
	fabrics *networkProbes
	beats   heartbeats
	// measured contains the ages of the measurements in PeerNetworks and Connections.
	measured measurements
	absent   absences
	// changed receives the clusters whose API server has started or stopped responding.
	changed chan event.GenericEvent
}

// NewController returns a controller that uses the client c; live must not use a cache.
func NewController(c client.Client, live client.Reader, recorder events.EventRecorder, options Options) *Controller {
	changed := make(chan event.GenericEvent)
	options.RefreshInterval = cmp.Or(options.RefreshInterval, refreshInterval)
	return &Controller{
		client: c, live: live, report: report.New(recorder), tenants: report.New(recorder), expiry: report.New(recorder), options: options, changed: changed,
		probes: newProbes(options, changed), fabrics: newNetworkProbes(options, changed), beats: heartbeats{seen: map[string]beat{}}, measured: measurements{seen: map[string]map[string]measurement{}}, absent: absences{until: map[string]time.Time{}},
	}
}

// Name returns the name of the controller in logs, metrics and Events.
func (c *Controller) Name() string { return "foreigncluster" }

// Reasons and action of the Events of this controller.
const (
	unusableKubeconfigReason = "UnusableKubeconfig"
	probeAction              = "Probe"
	expiringReason           = "CredentialsExpire"
	duplicateTenantReason    = "DuplicateTenantNamespace"
	readAction               = "ReadTenantNamespace"
)

// warnOfIdle reports which tenant namespaces of a cluster are ignored.
func (c *Controller) warnOfIdle(f *facts) {
	if len(f.idle) == 0 {
		c.tenants.Clear(types.NamespacedName{Name: f.cluster.Name})
		return
	}
	c.tenants.Warn(f.cluster, duplicateTenantReason, readAction, fmt.Sprintf("cluster %s has more than one tenant namespace: using %s, ignoring %s; remove the label %s from the one that should not be used",
		f.id, f.tenant, strings.Join(f.idle, ", "), wire.TenantNamespaceLabel))
}

// refreshInterval is how often a status is determined even if no watch event arrives. The kubeconfigs in Secrets are not
// watched, and neither are the times of Connections and PeerNetworks, from which the age of a measurement follows. A
// longer interval delays the detection of a gateway that is gone, and of a network while Connections cannot be watched.
const refreshInterval = 10 * time.Second

// Reconcile determines the state of one cluster. The name in the request is the cluster's ID.
func (c *Controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	facts, err := c.gatherFacts(ctx, request.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !facts.isPeered() || facts.cluster != nil && facts.cluster.DeletionTimestamp != nil {
		c.probes.stopProbe(request.Name)
		c.fabrics.stopProbe(request.Name)
		c.beats.dropCluster(request.Name)
		c.measured.dropCluster(request.Name)
		c.reportState(request.Name, metrics.Peer{})
		return reconcile.Result{}, nil
	}
	if facts.cluster == nil {
		if facts.cluster, err = c.createForeignCluster(ctx, request.Name); err != nil {
			return reconcile.Result{}, err
		}
	}
	c.warnOfIdle(facts)
	if err := c.signHeartbeat(ctx, facts); err != nil {
		return reconcile.Result{}, err
	}
	status, again := c.desiredStatus(ctx, facts)
	if err := c.writeStatus(ctx, facts.cluster, status); err != nil {
		return reconcile.Result{}, err
	}
	if status.APIServerLatency != nil {
		c.probes.markLatencyWritten(request.Name)
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

func (c *Controller) reportState(cluster string, state metrics.Peer) {
	if c.options.Observed != nil {
		c.options.Observed(cluster, state)
	}
}

// facts contains the objects of this cluster that belong to one peering.
type facts struct {
	id           string
	cluster      *core.ForeignCluster // nil if there is no ForeignCluster
	tenant       string               // name of the tenant namespace; empty if there is none
	idle         []string             // additional tenant namespaces, which are ignored
	virtualNodes []offloading.VirtualNode
	nodesReady   int  // number of ready virtual nodes
	consumes     bool // the other cluster has requested namespaces in this cluster
	heartbeat    *lease
}

// isPeered reports whether the other cluster has a tenant namespace or a VirtualNode here.
func (f *facts) isPeered() bool { return f.tenant != "" || len(f.virtualNodes) > 0 }

func (f *facts) peeringRole() core.Role {
	switch consumer, provider := f.consumes || f.heartbeat != nil, len(f.virtualNodes) > 0; {
	case consumer && provider:
		return core.ConsumerAndProviderRole
	case consumer:
		return core.ConsumerRole
	case provider:
		return core.ProviderRole
	}
	return core.UnknownRole
}

func (c *Controller) gatherFacts(ctx context.Context, id string) (*facts, error) {
	f := &facts{id: id}
	var err error
	if f.cluster, err = peers.Find(ctx, c.client, id); err != nil {
		return nil, err
	}
	ofCluster := client.MatchingLabels{wire.RemoteClusterIDLabel: id}
	tenants, virtualNodes, maps := &corev1.NamespaceList{}, &offloading.VirtualNodeList{}, &offloading.NamespaceMapList{}
	if err := c.client.List(ctx, tenants, ofCluster, client.MatchingLabels{wire.TenantNamespaceLabel: "true"}); err != nil {
		return nil, fmt.Errorf("listing tenant namespaces of cluster %s, %w", id, err)
	}
	if err := c.client.List(ctx, virtualNodes); err != nil {
		return nil, fmt.Errorf("listing VirtualNodes, %w", err)
	}
	for i := range tenants.Items {
		if tenants.Items[i].DeletionTimestamp == nil {
			f.idle = append(f.idle, tenants.Items[i].Name)
		}
	}
	if len(f.idle) > 0 {
		slices.Sort(f.idle)
		at := max(0, slices.Index(f.idle, wire.TenantNamespace(id)))
		f.tenant = f.idle[at]
		f.idle = slices.Delete(f.idle, at, at+1)
	}
	for i := range virtualNodes.Items {
		if string(virtualNodes.Items[i].Spec.ClusterID) == id {
			f.virtualNodes = append(f.virtualNodes, virtualNodes.Items[i])
		}
	}
	if f.nodesReady, err = c.readyNodes(ctx, f.virtualNodes); err != nil || f.tenant == "" {
		return f, err
	}
	if err := c.client.List(ctx, maps, client.InNamespace(f.tenant)); err != nil {
		return nil, fmt.Errorf("listing NamespaceMaps of cluster %s, %w", id, err)
	}
	f.consumes = slices.ContainsFunc(maps.Items, func(m offloading.NamespaceMap) bool { return m.Labels[wire.ReplicatedLabel] == "true" })
	f.heartbeat, err = c.readHeartbeat(ctx, f.tenant)
	return f, err
}

func (c *Controller) readyNodes(ctx context.Context, virtualNodes []offloading.VirtualNode) (ready int, err error) {
	for i := range virtualNodes {
		node := &corev1.Node{}
		err := c.client.Get(ctx, types.NamespacedName{Name: virtualNodes[i].Name}, node)
		if client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("getting node %s, %w", virtualNodes[i].Name, err)
		}
		if _, condition := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady); condition != nil && condition.Status == corev1.ConditionTrue {
			ready++
		}
	}
	return ready, nil
}

func (c *Controller) createForeignCluster(ctx context.Context, id string) (*core.ForeignCluster, error) {
	cluster := &core.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: id, Labels: map[string]string{wire.RemoteClusterIDLabel: id}},
		Spec:       core.ForeignClusterSpec{ClusterID: core.ClusterID(id)},
	}
	if err := c.client.Create(ctx, cluster, client.FieldOwner(fieldManager)); err != nil {
		return nil, fmt.Errorf("creating ForeignCluster %s, %w", id, err)
	}
	log.FromContext(ctx).Info("Created the ForeignCluster of a peering", "cluster", id)
	return cluster, nil
}

const fieldManager = wire.ForeignClusterFieldManager

// writeStatus updates the status if it has changed. The update contains the resource version, so that it does not
// overwrite changes by other clients.
func (c *Controller) writeStatus(ctx context.Context, cluster *core.ForeignCluster, status *core.ForeignClusterStatus) error {
	if equality.Semantic.DeepEqual(&cluster.Status, status) {
		return nil
	}
	changed := cluster.DeepCopy()
	changed.Status = *status
	patch := client.MergeFromWithOptions(cluster, client.MergeFromWithOptimisticLock{})
	if err := c.client.Status().Patch(ctx, changed, patch, client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("writing the status of ForeignCluster %s, %w", cluster.Name, err)
	}
	return nil
}

// Enforces returns an empty list of the enforced kind, and a filter for ForeignClusters. Both are used for metrics.
func (c *Controller) Enforces() (client.ObjectList, func(client.Object) bool) {
	return &core.ForeignClusterList{}, func(client.Object) bool { return true }
}
