// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowendpointslice

import (
	"context"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/controllers/internal/peers"
)

// state is what matters here of a foreign cluster.
type state struct {
	// known is false when this cluster has no ForeignCluster for it.
	known bool
	// reachable reports whether traffic may be sent there.
	reachable bool
	// networking reports whether addresses there are mapped to others here.
	networking bool
	// noNetwork: it is declared that pods here do not reach those there.
	noNetwork bool
}

// stateOf returns the state of the cluster with the given id.
func (c *Controller) stateOf(ctx context.Context, clusterID string) (state, error) {
	cluster, err := peers.Find(ctx, c.client, clusterID)
	if err != nil || cluster == nil {
		return state{}, err
	}
	return observe(cluster), nil
}

// observe derives the state from the conditions: the network must be connected,
// unless it is not checked, and the API server must answer, unless it
// watches it (a consumer that sends no heartbeat and gave no access to itself).
// A ForeignCluster that no controller has reconciled yet says nothing, and one
// that is declared dead says no.
//
// Liqo: remote endpointslices, which keep their last state without a
// ForeignCluster.
func observe(cluster *core.ForeignCluster) state {
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
