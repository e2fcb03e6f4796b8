// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/metrics"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/credentials"
	"github.com/refract-project/refract/internal/printable"
)

// Reasons of the condition APIServerStatus. After a restart, they also show the source that determined the condition.
const (
	answersReason           = "Answers"
	noAnswerReason          = "DoesNotAnswer"
	invalidKubeconfigReason = "InvalidKubeconfig"
	wrongClusterReason      = "WrongCluster"
	notCheckedReason        = "NotChecked"
	heartbeatReason         = "HeartbeatReceived"
	heartbeatLostReason     = "HeartbeatLost"
)

func isProbeReason(reason string) bool {
	return slices.Contains([]string{answersReason, noAnswerReason, wrongClusterReason, invalidKubeconfigReason, notCheckedReason}, reason)
}

func isHeartbeatReason(reason string) bool {
	return reason == heartbeatReason || reason == heartbeatLostReason
}

// desiredStatus returns the status to write, and the delay until it is determined again. Parts that cannot be
// determined are left unchanged.
func (c *Controller) desiredStatus(ctx context.Context, f *facts) (*core.ForeignClusterStatus, time.Duration) {
	status := f.cluster.Status.DeepCopy()
	status.ObservedGeneration = f.cluster.Generation
	status.Role = f.peeringRole()
	status.TenantNamespace.Local = f.tenant
	status.Modules.Authentication.Enabled = true
	status.Modules.Offloading.Enabled = len(f.virtualNodes) > 0
	c.describeOffloading(status, f)
	network := c.describeNetwork(ctx, status, f)
	server, v := c.describeAPIServer(ctx, status, f)
	c.reportState(f.id, metrics.Peer{Server: server, Network: network, Latency: v.latency, Credentials: v.credentials})
	return status, v.again
}

func (c *Controller) describeOffloading(status *core.ForeignClusterStatus, f *facts) {
	if len(f.virtualNodes) == 0 {
		dropCondition(&status.Modules.Offloading.Conditions, core.OffloadingNodeStatusCondition)
		return
	}
	condition := core.Condition{Type: core.OffloadingNodeStatusCondition, Status: core.ConditionStatusSomeNotReady, Reason: "NodesReady",
		Message: fmt.Sprintf("%d of %d virtual nodes are ready", f.nodesReady, len(f.virtualNodes))}
	switch f.nodesReady {
	case len(f.virtualNodes):
		condition.Status = core.ConditionStatusReady
	case 0:
		condition.Status = core.ConditionStatusNotReady
	}
	c.setCondition(&status.Modules.Offloading.Conditions, condition)
}

// describeNetwork writes the network conditions. Liqo's network module, which also maps addresses, has its own
// condition. If nothing checks the network, the conditions of other writers are left unchanged.
func (c *Controller) describeNetwork(ctx context.Context, status *core.ForeignClusterStatus, f *facts) (up *bool) {
	n, err := c.networkOf(ctx, f)
	if err != nil {
		log.FromContext(ctx).Error(err, "The network between the clusters cannot be checked, its conditions were left unchanged", "cluster", f.id)
		return nil
	}
	networking := &status.Modules.Networking
	if n == nil || !n.module {
		if known := conditionOf(networking.Conditions, core.NetworkConnectionStatusCondition); known != nil && isConnectionReason(known.Reason) {
			networking.Enabled = false
			dropCondition(&networking.Conditions, core.NetworkConnectionStatusCondition)
		}
	} else {
		networking.Enabled = true
		c.setCondition(&networking.Conditions, core.Condition{Type: core.NetworkConnectionStatusCondition, Status: n.status, Reason: n.reason, Message: n.message})
	}
	if n == nil {
		c.setCondition(&status.Conditions, core.Condition{Type: core.NetworkStatusCondition, Status: core.ConditionStatusNone, Reason: notCheckedReason, Message: notCheckedMessage})
		return nil
	}
	c.setCondition(&status.Conditions, core.Condition{Type: core.NetworkStatusCondition, Status: n.status, Reason: n.reason, Message: n.message})
	if n.status == core.ConditionStatusNone {
		return nil
	}
	established := n.status == core.ConditionStatusEstablished
	return &established
}

// apiServerState is the state of an API server.
type apiServerState struct {
	condition *core.Condition // nil means that the condition is left unchanged
	latency   time.Duration
	// credentials is the validity of the credentials for the API server.
	credentials credentials.Validity
	again       time.Duration // delay until the state must be checked again
}

// describeAPIServer probes the API server if there is a kubeconfig for it. Otherwise, it checks the heartbeat of the
// consumer.
func (c *Controller) describeAPIServer(ctx context.Context, status *core.ForeignClusterStatus, f *facts) (up *bool, v apiServerState) {
	v, err := c.probeAPIServer(ctx, status, f)
	switch {
	case err != nil:
		log.FromContext(ctx).Error(err, "The kubeconfig of a peer cannot be read, its condition was left unchanged", "cluster", f.id)
		return nil, apiServerState{again: c.options.RefreshInterval}
	case v.again == 0:
		v = c.checkHeartbeat(status, f)
	}
	if !v.credentials.Known() {
		c.expiry.Clear(types.NamespacedName{Name: f.cluster.Name})
	}
	if v.condition != nil {
		v.condition.Type = core.APIServerStatusCondition
		c.setCondition(&status.Conditions, *v.condition)
	}
	if known := conditionOf(status.Conditions, core.APIServerStatusCondition); known != nil {
		established := known.Status == core.ConditionStatusEstablished
		return &established, v
	}
	return nil, v
}

// probeAPIServer returns the state of the API server as determined by its probe. The state is empty if there is no
// kubeconfig.
func (c *Controller) probeAPIServer(ctx context.Context, status *core.ForeignClusterStatus, f *facts) (apiServerState, error) {
	key, secret, err := c.kubeconfigSecret(ctx, f)
	switch {
	case apierrors.IsNotFound(err):
		return c.unusableKubeconfig(f, fmt.Sprintf("Secret %s does not exist: it holds the kubeconfig for cluster %s, recreate it", key, f.id)), nil
	case err != nil:
		return apiServerState{}, err
	}
	if secret == nil {
		c.probes.stopProbe(f.id)
		status.APIServerURL, status.APIServerLatency = "", nil
		if known := conditionOf(status.Conditions, core.APIServerStatusCondition); known != nil && isProbeReason(known.Reason) {
			dropCondition(&status.Conditions, core.APIServerStatusCondition)
		}
		return apiServerState{}, nil
	}
	if c.options.PingInterval == 0 {
		c.probes.stopProbe(f.id)
		return apiServerState{condition: &core.Condition{Status: core.ConditionStatusEstablished, Reason: notCheckedReason,
			Message: "The API server is not probed, because --foreign-cluster-ping-interval is 0"}, again: c.options.RefreshInterval}, nil
	}
	remote := secret.Annotations[wire.RemoteTenantNamespaceAnnotation]
	probe, err := c.probes.probeFor(f.id, cmp.Or(remote, wire.TenantNamespace(c.options.ClusterID)), secret.Data[wire.KubeconfigSecretKey])
	if err != nil {
		return c.unusableKubeconfig(f, fmt.Sprintf("Secret %s, data.%s: %s", key, wire.KubeconfigSecretKey, err)), nil
	}
	c.report.Clear(types.NamespacedName{Name: f.cluster.Name})
	status.APIServerURL = probe.connection.URL().String()
	if remote != "" {
		status.TenantNamespace.Remote = remote
	}
	c.warnOfExpiry(f, key, probe.validity, probe.certified && secret.Annotations[wire.RenewedAnnotation] != "true")
	if !probe.isSettled() {
		// The first result of the probe triggers the next reconciliation.
		return apiServerState{credentials: probe.validity, again: c.options.RefreshInterval}, nil
	}
	if down := probe.pinger.Unreachable(); down != nil {
		reason := noAnswerReason
		if wrong := (*connection.WrongClusterError)(nil); errors.As(down, &wrong) {
			reason = wrongClusterReason
		}
		return apiServerState{condition: &core.Condition{Status: core.ConditionStatusError, Reason: reason, Message: "The API server " + down.Error()}, credentials: probe.validity, again: c.options.RefreshInterval}, nil
	}
	c.writeLatency(status, probe)
	return apiServerState{condition: &core.Condition{Status: core.ConditionStatusEstablished, Reason: answersReason, Message: "The API server answers at " + status.APIServerURL},
		latency: probe.lastLatency(), credentials: probe.validity, again: c.options.RefreshInterval}, nil
}

// warnOfExpiry warns if less than a third of the lifetime of the credentials is left. Every pod on the other cluster
// depends on the credentials. Tokens are renewed earlier, and so are certificates if the provider supports it. manual
// is true for a certificate that refractctl peer has requested and that the provider does not renew.
func (c *Controller) warnOfExpiry(f *facts, secret types.NamespacedName, validity credentials.Validity, manual bool) {
	name := types.NamespacedName{Name: f.cluster.Name}
	left := validity.Until.Sub(c.options.Clock.Now())
	if !validity.Known() || left > validity.Life()/3 {
		c.expiry.Clear(name)
		return
	}
	verb := "expire"
	if left <= 0 {
		verb = "have expired"
	}
	remedy := "renew them with refractctl peer, or replace the kubeconfig"
	if manual {
		remedy = "renew them with refractctl peer --credentials=certificate; set authentication.enabled of the chart in cluster " + f.id + " first to have them renewed automatically from then on"
	}
	c.expiry.Warn(f.cluster, expiringReason, probeAction, fmt.Sprintf("the credentials for cluster %s in Secret %s %s at %s: %s",
		f.id, secret, verb, validity.Until.UTC().Format(time.RFC3339), remedy))
}

// checkHeartbeat returns the state of the API server as determined by the heartbeat of the consumer. A Lease that this
// process reads for the first time may be old, and a deleted Lease may be created again. Therefore, the condition does
// not change before the Lease could have been renewed.
func (c *Controller) checkHeartbeat(status *core.ForeignClusterStatus, f *facts) apiServerState {
	known := conditionOf(status.Conditions, core.APIServerStatusCondition)
	if f.heartbeat == nil && (known == nil || !isHeartbeatReason(known.Reason)) {
		// The other cluster has never sent a heartbeat.
		return apiServerState{again: c.options.RefreshInterval}
	}
	now := c.options.Clock.Now()
	last := c.beats.lastBeat(f.id, f.heartbeat, now)
	left := last.expires.Sub(now)
	lease, since := f.tenant+"/"+wire.HeartbeatLease, last.at.UTC()
	switch {
	case left <= 0:
		return apiServerState{condition: &core.Condition{Status: core.ConditionStatusError, Reason: heartbeatLostReason,
			Message: "The consumer has not renewed Lease " + lease + " since " + since.Format(time.RFC3339) + ": check that its virtual kubelet runs, and can reach this cluster"}, again: c.options.RefreshInterval}
	case f.heartbeat == nil || !last.renewed:
		return apiServerState{again: left}
	}
	return apiServerState{condition: &core.Condition{Status: core.ConditionStatusEstablished, Reason: heartbeatReason,
		Message: "The consumer renews Lease " + lease + ", last renewed at " + since.Format("2006-01-02 15:04Z")}, again: left}
}

const (
	// latencyWriteInterval is how often the latency is written if it changes by less than half. A shorter interval
	// causes more writes.
	latencyWriteInterval = 10 * time.Minute
	// changedLatencyInterval is how often the latency is written if it changes by half or more.
	changedLatencyInterval = time.Minute
)

// writeLatency writes the latency of the last response. It does not write every latency, because the writes would be
// too expensive. If a latency was written but is missing afterwards, the CRD belongs to another implementation and does
// not have the field.
func (c *Controller) writeLatency(status *core.ForeignClusterStatus, probe *probe) {
	now := metav1.NewTime(c.options.Clock.Now().Truncate(time.Second))
	latency := probe.lastLatency().Round(100 * time.Microsecond)
	known := status.APIServerLatency
	if known == nil && probe.isLatencyWritten() {
		return
	}
	if known != nil {
		age := now.Sub(known.Timestamp.Time)
		before, err := time.ParseDuration(known.Value)
		if err == nil && age < latencyWriteInterval && (age < changedLatencyInterval || latency < 2*before && before < 2*latency) {
			return
		}
	}
	status.APIServerLatency = &core.Latency{Value: latency.String(), Timestamp: now}
}

// unusableKubeconfig reports a kubeconfig that cannot be used, and returns the state of its API server.
func (c *Controller) unusableKubeconfig(f *facts, message string) apiServerState {
	c.probes.stopProbe(f.id)
	c.report.Warn(f.cluster, unusableKubeconfigReason, probeAction, message)
	return apiServerState{condition: &core.Condition{Status: core.ConditionStatusError, Reason: invalidKubeconfigReason, Message: message}, again: c.options.RefreshInterval}
}

// kubeconfigSecret returns the Secret with the kubeconfig for the other cluster, or nil if there is none. For a
// provider, this is the Secret of its VirtualNodes. For a consumer, it is the Secret that the consumer has provided for
// the probe.
func (c *Controller) kubeconfigSecret(ctx context.Context, f *facts) (key types.NamespacedName, secret *corev1.Secret, err error) {
	for i := range f.virtualNodes {
		if reference := f.virtualNodes[i].Spec.KubeconfigSecretRef; reference != nil {
			key = types.NamespacedName{Namespace: f.virtualNodes[i].Namespace, Name: reference.Name}
			secret, err = c.readSecret(ctx, key)
			return key, secret, err
		}
	}
	if f.tenant == "" {
		return key, nil, nil
	}
	now := c.options.Clock.Now()
	key = types.NamespacedName{Namespace: f.tenant, Name: wire.ProbeSecret}
	if c.absent.isKnown(key.String(), now) {
		return key, nil, nil
	}
	secret, err = c.readSecret(ctx, key)
	// Most consumers provide no such Secret. Therefore, it is not an error if the Secret does not exist or if reading
	// it is forbidden.
	none := apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
	c.absent.recordAbsence(key.String(), none, now)
	if none {
		return key, nil, nil
	}
	return key, secret, err
}

func (c *Controller) readSecret(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	if err := c.live.Get(ctx, key, secret); err != nil {
		return nil, fmt.Errorf("getting Secret %s, %w", key, err)
	}
	return secret, nil
}

// maxMessageBytes is the maximum length of a message, in bytes. Messages may quote another cluster.
const maxMessageBytes = 4 << 10

// setCondition writes a condition. The transition time changes only with the status.
func (c *Controller) setCondition(conditions *[]core.Condition, next core.Condition) {
	next.Message = printable.Shorten(printable.Line(next.Message), maxMessageBytes)
	next.LastTransitionTime = metav1.NewTime(c.options.Clock.Now().Truncate(time.Second))
	known := conditionOf(*conditions, next.Type)
	if known == nil {
		*conditions = append(*conditions, next)
		return
	}
	if known.Status == next.Status {
		next.LastTransitionTime = known.LastTransitionTime
	}
	*known = next
}

// conditionOf returns the condition of type t, or nil if none exists.
func conditionOf(conditions []core.Condition, t core.ConditionType) *core.Condition {
	for i := range conditions {
		if conditions[i].Type == t {
			return &conditions[i]
		}
	}
	return nil
}

func dropCondition(conditions *[]core.Condition, t core.ConditionType) {
	*conditions = slices.DeleteFunc(*conditions, func(condition core.Condition) bool { return condition.Type == t })
}
