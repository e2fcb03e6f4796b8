// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"slices"
	"time"
)

// MostSkew is the largest accepted difference between the clocks of two clusters.
const MostSkew = mostSkew

// Clock returns how far the clock of the API server is ahead of the local clock. It is not known when a proxy has
// removed the Date header.
func (c *Cluster) Clock(ctx context.Context) (offset time.Duration, known bool, err error) {
	return clockOf(ctx, c.Config)
}

// LacksRights returns an error that lists the permissions that the user lacks to join the cluster with others, as a
// consumer or as a provider.
func (c *Cluster) LacksRights(ctx context.Context) error {
	return c.lacks(ctx, slices.Concat(consumerRights, grantRights, credentialRights[Tokens]))
}

// Compare runs the checks of Peer that also apply to clusters that are already joined, in either direction: IDs,
// clocks and versions. It changes nothing. Each check has its own error for the problems it found. err is set if the
// clusters cannot be compared.
func (o *Options) Compare(ctx context.Context) (sides, clocks, versions, err error) {
	if err := o.inspect(ctx); err != nil {
		return nil, nil, nil, err
	}
	if o.Consumer.uid == o.Provider.uid || o.Consumer.ID() == o.Provider.ID() {
		sides = o.checkSides(ctx)
	}
	return sides, o.checkClocks(ctx), o.checkVersions(ctx), nil
}
