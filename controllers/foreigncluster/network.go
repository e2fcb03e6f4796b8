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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/peers"
)

// network is the reported state of the network to another cluster. A nil network means that the network is not
// checked.
type network struct {
	status          core.ConditionStatus
	reason, message string
	module          bool // true if Liqo's network module has reported the status
}

// networkOf reads the sources in order of precedence: the annotation that the operator of a network fabric sets on the
// ForeignCluster, a probe of the provider's address in another annotation, the PeerNetwork, and the Connections of
// Liqo's network module.
func (c *Controller) networkOf(ctx context.Context, f *facts) (*network, error) {
	if n := annotatedNetwork(f.cluster); n != nil {
		return n, nil
	}
	if n := c.probedNetwork(f.cluster); n != nil {
		return n, nil
	}
	if n, err := c.declaredNetwork(ctx, f); n != nil || err != nil {
		return n, err
	}
	return c.connectedNetwork(ctx, f.id)
}

// declaredNetwork reads the PeerNetwork of a cluster. It returns nil if none exists, or if its status is unknown.
func (c *Controller) declaredNetwork(ctx context.Context, f *facts) (*network, error) {
	now := c.options.Clock.Now()
	if f.tenant == "" || c.absent.isKnown(plugins.PeerNetworkKind, now) {
		return nil, nil
	}
	declared := &plugins.PeerNetwork{}
	err := c.live.Get(ctx, client.ObjectKey{Namespace: f.tenant, Name: f.id}, declared)
	// An older release has no CRD of PeerNetworks. Its absence is recorded, so that not every heartbeat causes a read.
	c.absent.recordAbsence(plugins.PeerNetworkKind, meta.IsNoMatchError(err), now)
	switch {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("getting PeerNetwork %s/%s, %w", f.tenant, f.id, err)
	}
	name := "PeerNetwork " + f.tenant + "/" + f.id
	if declared.Spec.Mode == plugins.NoNetwork {
		return &network{status: core.ConditionStatusNone, reason: peers.NoNetworkReason, message: name + " says that no network connects the pods"}, nil
	}
	connected := meta.FindStatusCondition(declared.Status.Conditions, plugins.ConnectedCondition)
	if connected == nil {
		return nil, nil
	}
	n := &network{status: core.ConditionStatusPending, reason: declaredReason, message: fmt.Sprintf("%s: %.512s", name, connected.Message)}
	switch at := declared.Status.CheckedAt; {
	case at != nil && now.Sub(at.Time) > maxMeasurementAge:
		n.status, n.reason = core.ConditionStatusError, staleReason
		n.message = name + " was last checked at " + at.UTC().Format(time.RFC3339) + ": check the network provider that maintains this PeerNetwork"
	case connected.Status == metav1.ConditionTrue:
		n.status = core.ConditionStatusEstablished
	case connected.Status == metav1.ConditionFalse:
		n.status = core.ConditionStatusError
	}
	return n, nil
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

// connectionListKind is the kind of the tunnels of Liqo's network module.
var connectionListKind = schema.GroupVersionKind{Group: "networking.liqo.io", Version: "v1beta1", Kind: "ConnectionList"}

const (
	connectionUp = "Connected"
	// maxMeasurementAge is the age at which the last measurement of a Connection is ignored. Its gateway refreshes it
	// every ten seconds.
	maxMeasurementAge = time.Minute
)

// connectedNetwork reads the Connection of a cluster. It returns nil if none exists.
func (c *Controller) connectedNetwork(ctx context.Context, id string) (*network, error) {
	now := c.options.Clock.Now()
	if c.absent.isKnown(connectionListKind.Kind, now) {
		return nil, nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(connectionListKind)
	err := c.live.List(ctx, list, client.MatchingLabels{wire.RemoteClusterIDLabel: id})
	c.absent.recordAbsence(connectionListKind.Kind, meta.IsNoMatchError(err), now)
	switch {
	// The network module is not installed.
	case meta.IsNoMatchError(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing Connections of cluster %s, %w", id, err)
	}
	var best *network
	for i := range list.Items {
		if n := c.networkFromConnection(&list.Items[i]); best == nil || n.status == core.ConditionStatusEstablished {
			best = n
		}
	}
	return best, nil
}

func (c *Controller) networkFromConnection(connection *unstructured.Unstructured) *network {
	name := "Connection " + connection.GetNamespace() + "/" + connection.GetName()
	value, _, _ := unstructured.NestedString(connection.Object, "status", "value")
	text, _, _ := unstructured.NestedString(connection.Object, "status", "latency", "timestamp")
	measured, err := time.Parse(time.RFC3339, text)
	n := &network{module: true}
	switch {
	case value != connectionUp:
		n.status, n.reason = core.ConditionStatusPending, notConnectedReason
		n.message = fmt.Sprintf("%s is %q, not %s: check the gateways of both clusters", name, value, connectionUp)
	case err == nil && c.options.Clock.Since(measured) > maxMeasurementAge:
		n.status, n.reason, n.message = core.ConditionStatusError, staleReason, name+" was last refreshed at "+text+": check its gateway"
	default:
		n.status, n.reason, n.message = core.ConditionStatusEstablished, connectedReason, name+" is "+connectionUp
	}
	return n
}
