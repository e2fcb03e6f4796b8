// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package peers contains the queries about other clusters that several controllers need.
package peers

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// Find returns the ForeignCluster with the given ID, or nil if it does not exist. The result must not be modified.
// The name of a ForeignCluster may differ from its ID.
func Find(ctx context.Context, c client.Reader, id string) (*core.ForeignCluster, error) {
	clusters := &core.ForeignClusterList{}
	if err := c.List(ctx, clusters); err != nil {
		return nil, fmt.Errorf("listing ForeignClusters, %w", err)
	}
	for i := range clusters.Items {
		if string(clusters.Items[i].Spec.ClusterID) == id {
			return &clusters.Items[i], nil
		}
	}
	return nil, nil
}

// IsDead reports whether an administrator has declared that the cluster is permanently lost. A cluster without a
// ForeignCluster is not dead.
func IsDead(cluster *core.ForeignCluster) bool {
	return cluster != nil && cluster.Annotations[wire.PermanentlyUnreachableAnnotation] == "true"
}

// NoNetworkReason is the reason of the network condition if a ForeignCluster is declared to have no pod network to this
// cluster.
const NoNetworkReason = "NoNetwork"

// HasNoNetwork reports whether the cluster is declared to have no pod network to this cluster.
func HasNoNetwork(cluster *core.ForeignCluster) bool {
	return slices.ContainsFunc(cluster.Status.Conditions, func(c core.Condition) bool {
		return c.Type == core.NetworkStatusCondition && c.Reason == NoNetworkReason
	})
}

// IsOutgoing reports whether this cluster sends the NamespaceMap to a provider. If the two clusters have peered in both
// directions, the maps that this cluster receives are in the same namespace. A map that is sent has the name of the
// provider, and the provider cannot create another map with that name.
func IsOutgoing(namespaceMap client.Object) bool {
	labels := namespaceMap.GetLabels()
	return labels[wire.ReplicationLabel] == "true" && labels[wire.ReplicatedLabel] != "true" &&
		labels[wire.RemoteIDLabel] != "" && labels[wire.RemoteIDLabel] == namespaceMap.GetName()
}
