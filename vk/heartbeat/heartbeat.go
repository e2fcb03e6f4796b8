// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package heartbeat shows a provider that its consumer is available, even if the provider cannot reach it.
//
// A Lease in the tenant namespace on the provider is renewed as long as this cluster's API server is ready: a running
// virtual kubelet alone does not mean that the reflected endpoints are up to date. The provider evaluates the Lease
// with its own clock.
package heartbeat

import (
	"context"
	"encoding/json"
	"fmt"
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
	// beatsPerLease is how many heartbeats may be lost until the Lease expires: a provider that is busy is no reason to take
	// endpoints away from it.
	beatsPerLease = 4
	// failedRetry is when the next heartbeat is due after one that got no answer: until then no traffic comes.
	failedRetry = 2 * time.Second
	// deniedRetry is when a provider is asked again at the latest that allows no heartbeat: an upgrade brings the right. An API
	// server that has just started denies what it allows a moment later, so the first denials say little.
	deniedRetry  = 10 * time.Minute
	fieldManager = wire.HeartbeatFieldManager
)

// Options of a Heartbeat.
type Options struct {
	// ClusterID of this cluster.
	ClusterID string
	// Leases are those of the tenant namespace on the provider.
	Leases coordinationclient.LeaseInterface
	// Ready asks this cluster's API server whether it is ready.
	Ready func(context.Context) error
	// Interval of the heartbeats; 0 sends none.
	Interval time.Duration
	Clock    clock.Clock
}

// Run sends heartbeats until ctx ends.
func Run(ctx context.Context, o Options) {
	if o.Interval == 0 {
		return
	}
	h := &heart{Options: o}
	for ctx.Err() == nil {
		next := h.beat(ctx)
		select {
		case <-ctx.Done():
		case <-o.Clock.After(next):
		}
	}
}

type heart struct {
	Options
	trouble string // of the last heartbeat
	denied  int    // grows with every denial in a row
}

// beat sends one heartbeat and returns when the next one is due.
func (h *heart) beat(ctx context.Context) time.Duration {
	attempt, cancel := context.WithTimeout(ctx, h.Interval)
	defer cancel()
	if err := h.Ready(attempt); err != nil {
		h.report(ctx, fmt.Errorf("this cluster's API server is not ready, %w", err))
		return min(h.Interval, failedRetry)
	}
	err := h.renew(attempt)
	h.report(ctx, err)
	if apierrors.IsForbidden(err) {
		h.denied = min(2*h.denied+1, int(deniedRetry/failedRetry))
		return time.Duration(h.denied) * failedRetry
	}
	h.denied = 0
	if err != nil {
		return min(h.Interval, failedRetry)
	}
	return h.Interval
}

// report logs what has changed.
func (h *heart) report(ctx context.Context, err error) {
	trouble := ""
	if err != nil {
		trouble = err.Error()
	}
	if trouble == h.trouble || ctx.Err() != nil {
		return
	}
	h.trouble = trouble
	switch {
	case err == nil:
		log.FromContext(ctx).Info("Sending heartbeats to the provider", "lease", wire.HeartbeatLease)
	case apierrors.IsForbidden(err):
		log.FromContext(ctx).Info("The provider does not allow this cluster's heartbeat: upgrade the provider; no action needed if the provider probes this cluster", "err", err)
	default:
		log.FromContext(ctx).Error(err, "The heartbeat cannot be sent, retrying")
	}
}

func (h *heart) renew(ctx context.Context) error {
	spec := coordinationv1.LeaseSpec{HolderIdentity: &h.ClusterID, RenewTime: &metav1.MicroTime{Time: h.Clock.Now()}}
	seconds := int32(max(1, (beatsPerLease*h.Interval+time.Second-1)/time.Second))
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
