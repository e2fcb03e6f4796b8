// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/ipmap"
)

// rangesNotifyDelay is how long changes of the ranges of other clusters are collected until the followers of the ranges
// are notified. With a shorter delay, a peer that keeps changing its Configuration causes more writes in the namespaces
// of all consumers.
const rangesNotifyDelay = 2 * time.Second

// seenRanges contains the local ranges in the status of one Configuration.
type seenRanges struct {
	cluster string
	ranges  ipmap.Ranges
}

// RangesOfOthers returns the ranges by which this cluster reaches all clusters but the given one. They include the
// published ranges of Configurations that are incomplete, not accepted any more, or without a cluster, because gateways
// may still serve them. A Configuration without published ranges has none. It returns an error while the Configurations
// are unknown.
func (n *Networks) RangesOfOthers(ctx context.Context, cluster string) (ipmap.Ranges, error) {
	remapped, err := n.awaitConfigurations(ctx)
	if err != nil || !remapped {
		return nil, err
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	var others ipmap.Ranges
	for _, seen := range n.seen {
		if seen.cluster == "" || seen.cluster != cluster {
			others = append(others, seen.ranges...)
		}
	}
	return others.Summarize(), nil
}

// FollowRanges registers a function that is called after a result of RangesOfOthers has changed. It must not block.
func (n *Networks) FollowRanges(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rangesFollowers = append(n.rangesFollowers, f)
}

// updateSeen records the published ranges of a Configuration, and schedules a notification if they have changed.
func (n *Networks) updateSeen(object *unstructured.Unstructured) {
	key := object.GetNamespace() + "/" + object.GetName()
	current, exists, err := n.informer.GetStore().GetByKey(key)
	if err != nil {
		return // the store of an informer returns no errors
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	before, known := n.seen[key]
	now := seenRanges{}
	if u, ok := current.(*unstructured.Unstructured); ok && exists {
		now = readSeen(u)
		n.seen[key] = now
	} else {
		delete(n.seen, key)
	}
	if known != exists || before.cluster != now.cluster || !slices.Equal(before.ranges, now.ranges) {
		n.scheduleRangesNotification()
	}
}

// readSeen returns the published ranges of a Configuration. Ranges that are not CIDRs cannot be reached and are left
// out.
func readSeen(object *unstructured.Unstructured) seenRanges {
	seen := seenRanges{cluster: object.GetLabels()[wire.RemoteClusterIDLabel]}
	c := &configuration{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, c); err != nil {
		return seen // neither gateways nor this package can read it
	}
	for _, text := range slices.Concat(c.Status.Remote.CIDR.Pod, c.Status.Remote.CIDR.External) {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			seen.ranges = append(seen.ranges, prefix.Masked())
		}
	}
	return seen
}

// scheduleRangesNotification notifies the followers of the ranges after rangesNotifyDelay. The caller must hold n.mu.
func (n *Networks) scheduleRangesNotification() {
	if n.pending == nil {
		n.pending = time.AfterFunc(rangesNotifyDelay, n.notifyOfRanges)
	}
}

func (n *Networks) notifyOfRanges() {
	n.mu.Lock()
	followers := n.rangesFollowers
	n.pending = nil
	n.mu.Unlock()
	for _, follow := range followers {
		follow()
	}
}
