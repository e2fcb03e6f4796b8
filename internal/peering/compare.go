// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"slices"
	"time"
)

// MostSkew is how far apart the clocks of two clusters may be.
const MostSkew = mostSkew

// Clock returns how far the clock of the API server is ahead of that of this computer. It is not known when a proxy has removed the header
// Date.
func (c *Cluster) Clock(ctx context.Context) (offset time.Duration, known bool, err error) {
	return clockOf(ctx, c.Config)
}

// LacksRights returns an error that lists the permissions which the user lacks to join the cluster with others, as a consumer or as a provider.
func (c *Cluster) LacksRights(ctx context.Context) error {
	return c.lacks(ctx, slices.Concat(consumerRights, grantRights, credentialRights[Tokens]))
}

// Compare makes those of the checks of Peer that hold for clusters which are joined already, whichever of them is the consumer: ids, clocks
// and versions. It changes nothing. An error says that the clusters cannot be compared; what was found is returned as one for each check.
func (o *Options) Compare(ctx context.Context) (sides, clocks, versions, err error) {
	if err := o.inspect(ctx); err != nil {
		return nil, nil, nil, err
	}
	if o.Consumer.uid == o.Provider.uid || o.Consumer.ID() == o.Provider.ID() {
		sides = o.checkSides(ctx)
	}
	return sides, o.checkClocks(ctx), o.checkVersions(ctx), nil
}
