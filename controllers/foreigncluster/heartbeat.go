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

// lease contains the relevant fields of the Lease that a consumer renews.
type lease struct {
	version  string // version of the Lease, which changes with every renewal
	duration time.Duration
	signed   bool // the Lease contains the ID of this cluster
}

const (
	// minLeasePeriod and maxLeasePeriod bound the duration of a Lease. The consumer chooses it, and this cluster
	// keeps sending traffic to an unreachable consumer until the Lease expires.
	minLeasePeriod, maxLeasePeriod = 5 * time.Second, 2 * time.Minute
	defaultLeasePeriod             = 40 * time.Second // duration of the Lease of a Node
)

// readHeartbeat returns the Lease in a tenant namespace, or nil if there is none.
func (c *Controller) readHeartbeat(ctx context.Context, tenant string) (*lease, error) {
	found := &coordinationv1.Lease{}
	err := c.client.Get(ctx, client.ObjectKey{Namespace: tenant, Name: wire.HeartbeatLease}, found)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("getting Lease %s/%s, %w", tenant, wire.HeartbeatLease, err)
	}
	if err != nil || found.Spec.RenewTime == nil {
		return nil, nil
	}
	// The resource version is not used, because the annotation of the Lease changes it, too.
	version := fmt.Sprintf("%s/%d", found.UID, found.Spec.RenewTime.UnixMicro())
	return &lease{version: version, duration: boundedDuration(found.Spec.LeaseDurationSeconds),
		signed: found.Annotations[wire.ClusterIDAnnotation] == c.options.ClusterID}, nil
}

// signHeartbeat annotates the Lease of a consumer with the ID of this cluster, so that the consumer can detect a
// kubeconfig for the wrong cluster.
func (c *Controller) signHeartbeat(ctx context.Context, f *facts) error {
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

// boundedDuration returns the requested duration of a Lease, limited to the permitted range.
func boundedDuration(seconds *int32) time.Duration {
	if seconds == nil {
		return defaultLeasePeriod
	}
	return min(max(time.Duration(*seconds)*time.Second, minLeasePeriod), maxLeasePeriod)
}

// heartbeats records when Leases were renewed, by the clock of this process, because the consumer's clock may be wrong.
// It is safe for concurrent use.
type heartbeats struct {
	mu   sync.Mutex
	seen map[string]beat // keyed by cluster ID
}

type beat struct {
	version     string
	at, expires time.Time
	renewed     bool // false for the first Lease that this process has read, which may be old
}

// lastBeat returns the last renewal of the Lease. A nil Lease means that the Lease is missing.
func (h *heartbeats) lastBeat(cluster string, l *lease, now time.Time) beat {
	h.mu.Lock()
	defer h.mu.Unlock()
	known, ok := h.seen[cluster]
	switch {
	case l == nil && !ok:
		known = beat{at: now, expires: now.Add(defaultLeasePeriod)}
	case l != nil && known.version != l.version:
		known = beat{version: l.version, at: now, expires: now.Add(l.duration), renewed: ok}
	default:
		return known
	}
	h.seen[cluster] = known
	return known
}

func (h *heartbeats) dropCluster(cluster string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.seen, cluster)
}
