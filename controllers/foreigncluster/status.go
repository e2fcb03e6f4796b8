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

// Reasons of the condition APIServerStatus. They also identify the source, after a restart.
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

// status determines what to write, and when to determine it again. Unreadable parts stay unchanged.
func (c *Controller) status(ctx context.Context, f *facts) (*core.ForeignClusterStatus, time.Duration) {
	status := f.cluster.Status.DeepCopy()
	status.ObservedGeneration = f.cluster.Generation
	status.Role = f.role()
	status.TenantNamespace.Local = f.tenant
	status.Modules.Authentication.Enabled = true
	status.Modules.Offloading.Enabled = len(f.virtualNodes) > 0
	c.describeOffloading(status, f)
	network := c.describeNetwork(ctx, status, f)
	server, v := c.describeAPIServer(ctx, status, f)
	c.observed(f.id, metrics.Peer{Server: server, Network: network, Latency: v.latency, Credentials: v.credentials})
	return status, v.again
}

func (c *Controller) describeOffloading(status *core.ForeignClusterStatus, f *facts) {
	if len(f.virtualNodes) == 0 {
		drop(&status.Modules.Offloading.Conditions, core.OffloadingNodeStatusCondition)
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
	c.set(&status.Modules.Offloading.Conditions, condition)
}

// describeNetwork writes what is known of the network. Liqo's network module, which also maps addresses, has its own condition
// besides. Without anybody who checks, what others say there is left.
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
			drop(&networking.Conditions, core.NetworkConnectionStatusCondition)
		}
	} else {
		networking.Enabled = true
		c.set(&networking.Conditions, core.Condition{Type: core.NetworkConnectionStatusCondition, Status: n.status, Reason: n.reason, Message: n.message})
	}
	if n == nil {
		c.set(&status.Conditions, core.Condition{Type: core.NetworkStatusCondition, Status: core.ConditionStatusNone, Reason: notCheckedReason, Message: notCheckedMessage})
		return nil
	}
	c.set(&status.Conditions, core.Condition{Type: core.NetworkStatusCondition, Status: n.status, Reason: n.reason, Message: n.message})
	if n.status == core.ConditionStatusNone {
		return nil
	}
	established := n.status == core.ConditionStatusEstablished
	return &established
}

// verdict on an API server.
type verdict struct {
	condition *core.Condition // nil: the present one stays
	latency   time.Duration
	// credentials that open it
	credentials credentials.Validity
	again       time.Duration // when it may be another one
}

// describeAPIServer asks the API server, where there is a kubeconfig for it, else listens to the heartbeat of a consumer.
func (c *Controller) describeAPIServer(ctx context.Context, status *core.ForeignClusterStatus, f *facts) (up *bool, v verdict) {
	v, err := c.probed(ctx, status, f)
	switch {
	case err != nil:
		log.FromContext(ctx).Error(err, "The kubeconfig of a peer cannot be read, its condition was left unchanged", "cluster", f.id)
		return nil, verdict{again: refresh}
	case v.again == 0:
		v = c.listened(status, f)
	}
	if !v.credentials.Known() {
		c.expiry.Clear(types.NamespacedName{Name: f.cluster.Name})
	}
	if v.condition != nil {
		v.condition.Type = core.APIServerStatusCondition
		c.set(&status.Conditions, *v.condition)
	}
	if known := conditionOf(status.Conditions, core.APIServerStatusCondition); known != nil {
		established := known.Status == core.ConditionStatusEstablished
		return &established, v
	}
	return nil, v
}

// probed asks the API server. The verdict is empty when there is no kubeconfig to ask with.
func (c *Controller) probed(ctx context.Context, status *core.ForeignClusterStatus, f *facts) (verdict, error) {
	key, secret, err := c.identity(ctx, f)
	switch {
	case apierrors.IsNotFound(err):
		return c.unusable(f, fmt.Sprintf("Secret %s does not exist: it holds the kubeconfig for cluster %s, recreate it", key, f.id)), nil
	case err != nil:
		return verdict{}, err
	}
	if secret == nil {
		c.probes.stop(f.id)
		status.APIServerURL, status.APIServerLatency = "", nil
		if known := conditionOf(status.Conditions, core.APIServerStatusCondition); known != nil && isProbeReason(known.Reason) {
			drop(&status.Conditions, core.APIServerStatusCondition)
		}
		return verdict{}, nil
	}
	if c.options.PingInterval == 0 {
		c.probes.stop(f.id)
		return verdict{condition: &core.Condition{Status: core.ConditionStatusEstablished, Reason: notCheckedReason,
			Message: "The API server is not probed, because --foreign-cluster-ping-interval is 0"}, again: refresh}, nil
	}
	remote := secret.Annotations[wire.RemoteTenantNamespaceAnnotation]
	probe, err := c.probes.with(f.id, cmp.Or(remote, wire.TenantNamespace(c.options.ClusterID)), secret.Data[wire.KubeconfigSecretKey])
	if err != nil {
		return c.unusable(f, fmt.Sprintf("Secret %s, data.%s: %s", key, wire.KubeconfigSecretKey, err)), nil
	}
	c.report.Clear(types.NamespacedName{Name: f.cluster.Name})
	status.APIServerURL = probe.connection.URL().String()
	if remote != "" {
		status.TenantNamespace.Remote = remote
	}
	c.warnOfExpiry(f, key, probe.validity, probe.certified && secret.Annotations[wire.RenewedAnnotation] != "true")
	if !probe.settled() {
		return verdict{credentials: probe.validity, again: refresh}, nil // its first answer brings us back here
	}
	if down := probe.pinger.Unreachable(); down != nil {
		reason := noAnswerReason
		if wrong := (*connection.WrongClusterError)(nil); errors.As(down, &wrong) {
			reason = wrongClusterReason
		}
		return verdict{condition: &core.Condition{Status: core.ConditionStatusError, Reason: reason, Message: "The API server " + down.Error()}, credentials: probe.validity, again: refresh}, nil
	}
	c.measured(status, probe)
	return verdict{condition: &core.Condition{Status: core.ConditionStatusEstablished, Reason: answersReason, Message: "The API server answers at " + status.APIServerURL},
		latency: probe.took(), credentials: probe.validity, again: refresh}, nil
}

// warnOfExpiry when less than a third of the life of the credentials is left. Every pod on the other cluster depends on them. Tokens of
// ours are renewed before, and certificates where the provider does so. manual is whether it is a certificate of ours that it does not renew.
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

// listened judges the heartbeat of a consumer. A Lease that this process sees for the first time may be old, and one that is gone
// may come back: until it had the time to be renewed, what is known stays.
func (c *Controller) listened(status *core.ForeignClusterStatus, f *facts) verdict {
	known := conditionOf(status.Conditions, core.APIServerStatusCondition)
	if f.heartbeat == nil && (known == nil || !isHeartbeatReason(known.Reason)) {
		return verdict{again: refresh} // no heartbeat is expected
	}
	now := c.options.Clock.Now()
	last := c.beats.lastBeat(f.id, f.heartbeat, now)
	left := last.expires.Sub(now)
	lease, since := f.tenant+"/"+wire.HeartbeatLease, last.at.UTC()
	switch {
	case left <= 0:
		return verdict{condition: &core.Condition{Status: core.ConditionStatusError, Reason: heartbeatLostReason,
			Message: "The consumer has not renewed Lease " + lease + " since " + since.Format(time.RFC3339) + ": check that its virtual kubelet runs, and can reach this cluster"}, again: refresh}
	case f.heartbeat == nil || !last.renewed:
		return verdict{again: left}
	}
	return verdict{condition: &core.Condition{Status: core.ConditionStatusEstablished, Reason: heartbeatReason,
		Message: "The consumer renews Lease " + lease + ", last renewed at " + since.Format("2006-01-02 15:04Z")}, again: left}
}

// remeasure is how often the latency is written if it does not change by half.
const remeasure = 10 * time.Minute

// measured notes how long an answer took. A status that changed with every ping would cost more than it says; and where it was
// written and is not there, the CRD is another implementation's, which has no such field.
func (c *Controller) measured(status *core.ForeignClusterStatus, probe *probe) {
	now := metav1.NewTime(c.options.Clock.Now().Truncate(time.Second))
	latency := probe.took().Round(100 * time.Microsecond)
	known := status.APIServerLatency
	if known == nil && probe.wasNoted() {
		return
	}
	if known != nil {
		age := now.Sub(known.Timestamp.Time)
		before, err := time.ParseDuration(known.Value)
		if err == nil && age < remeasure && (age < time.Minute || latency < 2*before && before < 2*latency) {
			return
		}
	}
	status.APIServerLatency = &core.Latency{Value: latency.String(), Timestamp: now}
}

// unusable is the verdict without a kubeconfig that can be used.
func (c *Controller) unusable(f *facts, message string) verdict {
	c.probes.stop(f.id)
	c.report.Warn(f.cluster, unusableKubeconfigReason, probeAction, message)
	return verdict{condition: &core.Condition{Status: core.ConditionStatusError, Reason: invalidKubeconfigReason, Message: message}, again: refresh}
}

// identity returns the Secret with the kubeconfig for the other cluster, nil without one: that of its VirtualNodes where it is a
// provider, else the one that a consumer gave for this purpose.
func (c *Controller) identity(ctx context.Context, f *facts) (key types.NamespacedName, secret *corev1.Secret, err error) {
	for i := range f.virtualNodes {
		if reference := f.virtualNodes[i].Spec.KubeconfigSecretRef; reference != nil {
			key = types.NamespacedName{Namespace: f.virtualNodes[i].Namespace, Name: reference.Name}
			secret, err = c.secret(ctx, key)
			return key, secret, err
		}
	}
	if f.tenant == "" {
		return key, nil, nil
	}
	now := c.options.Clock.Now()
	key = types.NamespacedName{Namespace: f.tenant, Name: wire.ProbeSecret}
	if c.absent.known(key.String(), now) {
		return key, nil, nil
	}
	secret, err = c.secret(ctx, key)
	none := apierrors.IsNotFound(err) || apierrors.IsForbidden(err) // which is the rule
	c.absent.note(key.String(), none, now)
	if none {
		return key, nil, nil
	}
	return key, secret, err
}

func (c *Controller) secret(ctx context.Context, key types.NamespacedName) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	if err := c.live.Get(ctx, key, secret); err != nil {
		return nil, fmt.Errorf("getting Secret %s, %w", key, err)
	}
	return secret, nil
}

// mostMessage is how many bytes of a message are written: it may quote another cluster.
const mostMessage = 4 << 10

// set writes a condition; its time is that of the last change of its status.
func (c *Controller) set(conditions *[]core.Condition, next core.Condition) {
	next.Message = printable.Shorten(printable.Line(next.Message), mostMessage)
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

// conditionOf returns nil when there is none.
func conditionOf(conditions []core.Condition, t core.ConditionType) *core.Condition {
	for i := range conditions {
		if conditions[i].Type == t {
			return &conditions[i]
		}
	}
	return nil
}

func drop(conditions *[]core.Condition, t core.ConditionType) {
	*conditions = slices.DeleteFunc(*conditions, func(condition core.Condition) bool { return condition.Type == t })
}
