// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package foreigncluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
)

// lease is what is read of the Lease that a consumer renews.
type lease struct {
	version  string // changes with every renewal
	duration time.Duration
	signed   bool // it has the id of this cluster
}

const (
	// leastLease and mostLease bound how long a consumer may let us wait: it chooses the duration, and we keep sending
	// traffic to it meanwhile.
	leastLease, mostLease = 5 * time.Second, 2 * time.Minute
	defaultLease          = 40 * time.Second // of a node
)

// heartbeat returns the Lease of a tenant namespace, nil without one.
func (c *Controller) heartbeat(ctx context.Context, tenant string) (*lease, error) {
	found := &coordinationv1.Lease{}
	err := c.client.Get(ctx, client.ObjectKey{Namespace: tenant, Name: wire.HeartbeatLease}, found)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting Lease %s/%s, %w", tenant, wire.HeartbeatLease, err)
	}
	if err != nil || found.Spec.RenewTime == nil {
		return nil, nil
	}
	// Not its resource version: that changes when this controller annotates the Lease, too.
	version := fmt.Sprintf("%s/%d", found.UID, found.Spec.RenewTime.UnixMicro())
	return &lease{version: version, duration: bounded(found.Spec.LeaseDurationSeconds),
		signed: found.Annotations[wire.ClusterIDAnnotation] == c.options.ClusterID}, nil
}

// sign annotates the Lease of a consumer with the id of this cluster, by which a consumer notices that its kubeconfig leads to the wrong
// cluster.
func (c *Controller) sign(ctx context.Context, f *facts) error {
	if f.heartbeat == nil || f.heartbeat.signed || c.options.ClusterID == "" {
		return nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, wire.ClusterIDAnnotation, c.options.ClusterID)
	object := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: f.tenant, Name: wire.HeartbeatLease}}
	if err := c.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(fieldManager)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotating Lease %s/%s with the id of this cluster, %w", f.tenant, wire.HeartbeatLease, err)
	}
	return nil
}

// bounded returns how long a Lease lasts that is to last so many seconds.
func bounded(seconds *int32) time.Duration {
	if seconds == nil {
		return defaultLease
	}
	return min(max(time.Duration(*seconds)*time.Second, leastLease), mostLease)
}

// heartbeats remembers when leases were renewed, by the clock of this process: the consumer's may be wrong. Safe for concurrent
// use.
type heartbeats struct {
	mu   sync.Mutex
	seen map[string]beat // by cluster
}

type beat struct {
	version     string
	at, expires time.Time
	renewed     bool // at that time: the first Lease that this process sees may be old
}

// lastBeat returns when the Lease was renewed last; nil is one that is not there.
func (h *heartbeats) lastBeat(cluster string, l *lease, now time.Time) beat {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, ok := h.seen[cluster]
	switch {
	case l == nil && !ok:
		known = beat{at: now, expires: now.Add(defaultLease)}
	case l != nil && known.version != l.version:
		known = beat{version: l.version, at: now, expires: now.Add(l.duration), renewed: ok}
	default:
		return known
	}
	h.seen[cluster] = known
	return known
}

func (h *heartbeats) forget(cluster string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.seen, cluster)
}
