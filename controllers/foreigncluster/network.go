// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	core "github.com/refract-project/refract/api/core/v1beta1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/peers"
	"github.com/refract-project/refract/internal/printable"
)

// network is the reported state of the network to another cluster. A nil network means that the network is not checked.
type network struct {
	status          core.ConditionStatus
	reason, message string
	module          bool // the status was reported by a Connection
	// tunnel is the status for the condition Connected of a PeerNetwork. It is empty if module is false.
	tunnel metav1.ConditionStatus
}

// networkOf reads the sources in this order: the annotation that the operator of a network sets on the ForeignCluster,
// a probe of the provider's address in another annotation, the PeerNetwork, and the Connections of gateways.
func (c *Controller) networkOf(ctx context.Context, f *facts) (*network, error) {
	override := annotatedNetwork(f.cluster)
	if override == nil {
		override = c.probedNetwork(f.cluster)
	}
	declared, err := c.readPeerNetwork(ctx, f)
	if override != nil && (err != nil || !followsConnections(declared)) {
		return override, nil
	}
	if err != nil {
		return nil, err
	}
	measured, err := c.measuredNetwork(ctx, f, declared)
	if override != nil {
		return override, nil
	}
	return measured, err
}

// measuredNetwork returns the state in the PeerNetwork or, if there is none, in the Connections. It updates a
// PeerNetwork that follows the Connections.
func (c *Controller) measuredNetwork(ctx context.Context, f *facts, declared *plugins.PeerNetwork) (*network, error) {
	follows := followsConnections(declared)
	if !follows {
		if n := c.declaredNetwork(f, declared); n != nil {
			return n, nil
		}
	}
	connected, err := c.connectedNetwork(ctx, f)
	if err != nil || !follows {
		return connected, err
	}
	if err := c.describeConnection(ctx, declared, connected); err != nil {
		log.FromContext(ctx).Error(err, "The condition of the PeerNetwork was left unchanged", "cluster", f.id)
	}
	if connected == nil {
		return c.declaredNetwork(f, declared), nil
	}
	return connected, nil
}

// readPeerNetwork returns the PeerNetwork of a cluster, or nil if there is none.
func (c *Controller) readPeerNetwork(ctx context.Context, f *facts) (*plugins.PeerNetwork, error) {
	now := c.options.Clock.Now()
	if f.tenant == "" || c.absent.isKnown(plugins.PeerNetworkKind, now) {
		return nil, nil
	}
	declared := &plugins.PeerNetwork{}
	err := c.live.Get(ctx, client.ObjectKey{Namespace: f.tenant, Name: f.id}, declared)
	// The CRD of PeerNetworks may be missing, because older releases do not contain it. Its absence is recorded, so
	// that not every heartbeat causes a read.
	c.absent.recordAbsence(plugins.PeerNetworkKind, meta.IsNoMatchError(err), now)
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("getting PeerNetwork %s/%s, %w", f.tenant, f.id, err)
	}
	return declared, nil
}

// followsConnections reports whether the condition of a PeerNetwork summarizes Connections. A condition that another
// network provider has set has another reason and is kept.
func followsConnections(declared *plugins.PeerNetwork) bool {
	if declared == nil || declared.Spec.Mode != plugins.GatewayNetwork {
		return false
	}
	known := meta.FindStatusCondition(declared.Status.Conditions, plugins.ConnectedCondition)
	return known == nil || isConnectionReason(known.Reason)
}

// describeConnection writes the condition of a PeerNetwork that follows the Connections, if the condition has changed.
// It writes nothing before the first Connection exists.
func (c *Controller) describeConnection(ctx context.Context, declared *plugins.PeerNetwork, connected *network) error {
	if connected == nil && meta.FindStatusCondition(declared.Status.Conditions, plugins.ConnectedCondition) == nil {
		return nil
	}
	condition := metav1.Condition{
		Type: plugins.ConnectedCondition, Status: metav1.ConditionUnknown, Reason: notConnectedReason,
		Message:            "the Connection of the gateway is gone: check whether the GatewayServer or the GatewayClient was deleted",
		ObservedGeneration: declared.Generation, LastTransitionTime: metav1.NewTime(c.options.Clock.Now()),
	}
	if connected != nil {
		condition.Status, condition.Reason, condition.Message = connected.tunnel, connected.reason, printable.Message(connected.message)
	}
	before := declared.DeepCopy()
	if !meta.SetStatusCondition(&declared.Status.Conditions, condition) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := c.client.Status().Patch(ctx, declared, patch, client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("writing the status of PeerNetwork %s, %w", client.ObjectKeyFromObject(before), err)
	}
	return nil
}

// declaredNetwork returns the state in a PeerNetwork. It returns nil if the PeerNetwork does not exist or contains no
// state.
func (c *Controller) declaredNetwork(f *facts, declared *plugins.PeerNetwork) *network {
	if declared == nil {
		return nil
	}
	name := measurementName(plugins.PeerNetworkKind, declared)
	if declared.Spec.Mode == plugins.NoNetwork {
		return &network{status: core.ConditionStatusNone, reason: peers.NoNetworkReason, message: name + " says that no network connects the pods"}
	}
	connected := meta.FindStatusCondition(declared.Status.Conditions, plugins.ConnectedCondition)
	if connected == nil {
		return nil
	}
	n := &network{status: core.ConditionStatusPending, reason: declaredReason, message: fmt.Sprintf("%s: %.512s", name, connected.Message)}
	if at := declared.Status.CheckedAt; at != nil {
		text := at.UTC().Format(time.RFC3339)
		stale := name + " was last checked at " + text + ": check the network provider that maintains this PeerNetwork"
		if c.isStale(f, name, text, stale) {
			n.status, n.reason, n.message = core.ConditionStatusError, staleReason, stale
			return n
		}
	}
	switch connected.Status {
	case metav1.ConditionTrue:
		n.status = core.ConditionStatusEstablished
	case metav1.ConditionFalse:
		n.status = core.ConditionStatusError
	}
	return n
}

// isStale reports whether a measurement was not refreshed for too long. An earlier process that has found the
// measurement stale has written the message into the condition.
func (c *Controller) isStale(f *facts, object, refreshed, message string) bool {
	known := conditionOf(f.cluster.Status.Conditions, core.NetworkStatusCondition)
	wasStale := known != nil && known.Reason == staleReason && known.Message == message
	return c.measured.isStale(f.id, object, refreshed, wasStale, c.options.Clock.Now())
}

// Reasons of the network conditions.
const (
	annotatedReason    = "SetByAnnotation"
	invalidReason      = "InvalidAnnotation"
	probeReason        = "ProbeAnswered"
	probeFailedReason  = "ProbeFailed"
	probePendingReason = "ProbePending"
	connectedReason    = "ConnectionEstablished"
	notConnectedReason = "ConnectionNotEstablished"
	staleReason        = "ConnectionNotRefreshed"
	declaredReason     = "SetByPeerNetwork"

	notCheckedMessage = "The network between the clusters is not checked"
)

func isConnectionReason(reason string) bool {
	return reason == connectedReason || reason == notConnectedReason || reason == staleReason
}

func isNetworkProbeReason(reason string) bool {
	return reason == probeReason || reason == probeFailedReason
}

func annotatedNetwork(cluster *core.ForeignCluster) *network {
	value, set := cluster.Annotations[wire.NetworkStatusAnnotation]
	if !set {
		return nil
	}
	switch status := core.ConditionStatus(value); status {
	case core.ConditionStatusEstablished, core.ConditionStatusPending, core.ConditionStatusError:
		return &network{status: status, reason: annotatedReason, message: "Annotation " + wire.NetworkStatusAnnotation + " is " + value}
	}
	return &network{status: core.ConditionStatusError, reason: invalidReason, message: fmt.Sprintf("Annotation %s is %.40q: use Established, Pending or Error",
		wire.NetworkStatusAnnotation, value)}
}

// Values in Connections.
const (
	connectionUp      = "Connected"
	connectionStarted = "Connecting"
)

// connectedNetwork reads the Connections of a cluster, and prefers an established one. It returns nil if there is none.
func (c *Controller) connectedNetwork(ctx context.Context, f *facts) (*network, error) {
	now := c.options.Clock.Now()
	if c.absent.isKnown(networking.ConnectionKind, now) {
		return nil, nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(networking.GroupVersion.WithKind(networking.ConnectionKind + "List"))
	err := c.live.List(ctx, list, client.MatchingLabels{wire.RemoteClusterIDLabel: f.id})
	// Listing fails with NotFound if the CRD was removed while this process was running.
	notServed := meta.IsNoMatchError(err) || apierrors.IsNotFound(err)
	c.absent.recordAbsence(networking.ConnectionKind, notServed, now)
	switch {
	// The network module is not installed.
	case notServed:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing Connections of cluster %s, %w", f.id, err)
	}
	var best *network
	for i := range list.Items {
		if n := c.networkFromConnection(f, &list.Items[i]); best == nil || n.status == core.ConditionStatusEstablished {
			best = n
		}
	}
	return best, nil
}

func (c *Controller) networkFromConnection(f *facts, connection *unstructured.Unstructured) *network {
	name := measurementName(networking.ConnectionKind, connection)
	value, _, _ := unstructured.NestedString(connection.Object, "status", "value")
	refreshed, _, _ := unstructured.NestedString(connection.Object, "status", "latency", "timestamp")
	n := &network{module: true, status: core.ConditionStatusPending, reason: notConnectedReason, tunnel: metav1.ConditionFalse}
	if value != connectionUp {
		n.message = fmt.Sprintf("%s is %q, not %s: check the gateways of both clusters", name, value, connectionUp)
		if value == connectionStarted || value == "" {
			n.tunnel = metav1.ConditionUnknown
		}
		return n
	}
	stale := name + " was last refreshed at " + refreshed + ": check its gateway"
	if refreshed != "" && c.isStale(f, name, refreshed, stale) {
		n.status, n.reason, n.message = core.ConditionStatusError, staleReason, stale
		return n
	}
	n.status, n.reason, n.message, n.tunnel = core.ConditionStatusEstablished, connectedReason, name+" is "+connectionUp, metav1.ConditionTrue
	return n
}
