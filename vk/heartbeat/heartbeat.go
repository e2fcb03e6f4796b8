// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package heartbeat tells a provider that its consumer is available, even if the provider cannot reach the consumer.
//
// The virtual kubelet renews a Lease in the tenant namespace on the provider, but only while this cluster's API server
// is ready: otherwise the reflected endpoints may be outdated although the virtual kubelet is running. The provider
// evaluates the Lease with its own clock.
package heartbeat

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/refract-project/refract/api/wire"
)

const (
	// beatsPerLease is the duration of the Lease in heartbeat intervals. If it were 1, endpoints would become unready
	// whenever a busy provider missed a heartbeat.
	beatsPerLease = 4
	// failedRetryDelay is the delay after a heartbeat without a response. The provider sends no traffic until the
	// next successful heartbeat.
	failedRetryDelay = 2 * time.Second
	// deniedRetryDelay is the maximum delay until a forbidden heartbeat is retried, because an upgrade of the
	// provider may grant the permission. The first denials are retried earlier, because an API server that has just
	// started may deny requests for a short time.
	deniedRetryDelay = 10 * time.Minute
	fieldManager     = wire.HeartbeatFieldManager
)

// Options are the settings of the heartbeats.
type Options struct {
	// ClusterID is the ID of this cluster.
	ClusterID string
	// Leases accesses the Leases in the tenant namespace on the provider.
	Leases coordinationclient.LeaseInterface
	// Ready checks whether this cluster's API server is ready.
	Ready func(context.Context) error
	// Interval is the time between heartbeats; 0 disables them.
	Interval time.Duration
	Clock    clock.Clock
}

// Run sends heartbeats until ctx is done.
func Run(ctx context.Context, o Options) {
	if o.Interval == 0 {
		return
	}
	h := &sender{Options: o}
	for ctx.Err() == nil {
		next := h.sendHeartbeat(ctx)
		select {
		case <-ctx.Done():
		case <-o.Clock.After(next):
		}
	}
}

type sender struct {
	Options
	lastError string // error of the last heartbeat, or empty after a success
	denials   int    // number of consecutive denials
}

// sendHeartbeat sends one heartbeat, and returns the delay until the next one.
func (h *sender) sendHeartbeat(ctx context.Context) time.Duration {
	attempt, cancel := context.WithTimeout(ctx, h.Interval)
	defer cancel()
	if err := h.Ready(attempt); err != nil {
		h.reportChange(ctx, fmt.Errorf("this cluster's API server is not ready, %w", err))
		return min(h.Interval, failedRetryDelay)
	}
	err := h.renewLease(attempt)
	h.reportChange(ctx, err)
	if apierrors.IsForbidden(err) {
		h.denials = min(2*h.denials+1, int(deniedRetryDelay/failedRetryDelay))
		return time.Duration(h.denials) * failedRetryDelay
	}
	h.denials = 0
	if err != nil {
		return min(h.Interval, failedRetryDelay)
	}
	return h.Interval
}

// reportChange logs err if it differs from the previous error.
func (h *sender) reportChange(ctx context.Context, err error) {
	trouble := ""
	if err != nil {
		trouble = err.Error()
	}
	if trouble == h.lastError || ctx.Err() != nil {
		return
	}
	h.lastError = trouble
	switch {
	case err == nil:
		log.FromContext(ctx).Info("Sending heartbeats to the provider", "lease", wire.HeartbeatLease)
	case apierrors.IsForbidden(err):
		log.FromContext(ctx).Info("The provider does not allow this cluster's heartbeat: it has drained or removed the Tenant of this cluster, or it must be upgraded; no action needed if it probes this cluster", "err", err)
	default:
		log.FromContext(ctx).Error(err, "The heartbeat cannot be sent, retrying")
	}
}

func (h *sender) renewLease(ctx context.Context) error {
	spec := coordinationv1.LeaseSpec{HolderIdentity: &h.ClusterID, RenewTime: &metav1.MicroTime{Time: h.Clock.Now()}}
	seconds := int32(max(1, math.Ceil((beatsPerLease * h.Interval).Seconds())))
	spec.LeaseDurationSeconds = &seconds
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	_, err = h.Leases.Patch(ctx, wire.HeartbeatLease, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if apierrors.IsNotFound(err) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: wire.HeartbeatLease}, Spec: spec}
		_, err = h.Leases.Create(ctx, lease, metav1.CreateOptions{FieldManager: fieldManager})
	}
	if err != nil {
		return fmt.Errorf("renewing Lease %s on the provider, %w", wire.HeartbeatLease, err)
	}
	return nil
}
