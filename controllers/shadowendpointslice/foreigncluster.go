// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowendpointslice

import (
	"context"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/controllers/internal/peers"
)

// state contains the properties of a foreign cluster that its endpoints depend on.
type state struct {
	// known is false if there is no ForeignCluster for the cluster.
	known bool
	// reachable is true if traffic may be sent to the cluster.
	reachable bool
	// networking is true if this cluster maps addresses of the cluster to other addresses.
	networking bool
	// noNetwork is true if it is configured that no network connects the pods of the clusters.
	noNetwork bool
}

// stateOf returns the state of the cluster with the given ID.
func (c *Controller) stateOf(ctx context.Context, clusterID string) (state, error) {
	cluster, err := peers.Find(ctx, c.client, clusterID)
	if err != nil || cluster == nil {
		return state{}, err
	}
	return observeState(cluster), nil
}

// observeState derives the state from the conditions. The network must be connected, unless it is not checked. The API
// server must respond, unless nothing checks it because the consumer sends no heartbeat and provides no access. A
// ForeignCluster that was not reconciled yet has no conditions, and counts as unreachable. A cluster that is declared
// dead is unreachable.
//
// Unlike Refract, Liqo keeps the last state of the endpoints if there is no ForeignCluster.
func observeState(cluster *core.ForeignCluster) state {
	status := &cluster.Status
	networking := status.Modules.Networking.Enabled
	connected := !networking ||
		core.ConditionOf(status.Modules.Networking.Conditions, core.NetworkConnectionStatusCondition) == core.ConditionStatusEstablished
	fine := func(t core.ConditionType) bool {
		known := core.ConditionOf(status.Conditions, t)
		return known == core.ConditionStatusEstablished || known == core.ConditionStatusNone
	}
	return state{
		known:      true,
		networking: networking,
		noNetwork:  peers.HasNoNetwork(cluster),
		reachable:  status.ObservedGeneration > 0 && connected && fine(core.NetworkStatusCondition) && fine(core.APIServerStatusCondition) && !peers.IsDead(cluster),
	}
}
