// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"fmt"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/gateways"
	"github.com/refract-project/refract/internal/refractctl/podnetwork"
)

// ConnectNetworks connects the networks of two clusters through gateways, and returns when the gateways are connected. The
// clusters may be joined or not. It may be called again. If it fails before it waits for the connection, it removes the objects that
// it has created. A dry run ends after the checks.
func (o *Options) ConnectNetworks(ctx context.Context) error {
	return progress.Ended(ctx, o.connectNetworks(ctx))
}

func (o *Options) connectNetworks(ctx context.Context) error {
	p, err := o.inspect(ctx)
	if err != nil {
		return err
	}
	network, link, err := p.findNetworks(ctx, o)
	if err != nil {
		return err
	}
	if err := errors.Join(p.checkDifferent(), p.checkTenants(ctx), link.Check(ctx)); err != nil {
		return err
	}
	p.Report("the networks of %s (%s) and %s (%s) can be connected", p.consumer.ID(), p.consumer.Name, p.provider.ID(), p.provider.Name)
	if o.DryRun {
		return nil
	}
	j := p.beginJoin()
	if err := j.connectNetworks(ctx, network, link); err != nil {
		return j.takeBack(ctx, err, "refractctl network connect", "refractctl network disconnect --release-ranges")
	}
	return link.AwaitConnected(ctx)
}

// findNetworks returns the network of gateways between the clusters, and its link.
func (p *pair) findNetworks(ctx context.Context, o *Options) (*podnetwork.Network, *gateways.Link, error) {
	settings, _, err := p.settleNetwork(ctx, o.Network, o.Network.ProviderRanges)
	if err != nil {
		return nil, nil, err
	}
	settings.Mode = plugins.GatewayNetwork
	network, err := podnetwork.Learn(ctx, p.consumer, p.provider, settings)
	if err != nil {
		return nil, nil, err
	}
	link, err := p.findLink(ctx, network, o.Gateways)
	return network, link, err
}

// checkDifferent returns an error if the two clusters cannot be distinguished.
func (p *pair) checkDifferent() error {
	switch {
	case p.consumer.UID == p.provider.UID:
		return fmt.Errorf("%s and %s are the same cluster: use another one as the provider", p.consumer.Name, p.provider.Name)
	case p.consumer.ID() == p.provider.ID():
		return fmt.Errorf("both clusters have the id %q: ids are unique among peers, so install Refract in one of them again with another --cluster-id", p.consumer.ID())
	}
	return nil
}

func (j *joining) connectNetworks(ctx context.Context, network *podnetwork.Network, link *gateways.Link) error {
	if err := j.atConsumer.CreateTenant(ctx, j.provider); err != nil {
		return err
	}
	if !j.provider.IsInvited() {
		if err := j.atProvider.CreateTenant(ctx, j.consumer); err != nil {
			return err
		}
		if !j.provider.RunsLiqo {
			if err := network.Declare(ctx, j.atProvider, j.Reporter); err != nil {
				return err
			}
		}
	}
	if err := network.Declare(ctx, j.atConsumer, j.Reporter); err != nil {
		return err
	}
	return link.Connect(ctx, j.atConsumer, j.atProvider)
}

// DisconnectNetworks removes the gateways between two clusters. The ranges by which the clusters reach each other stay reserved, unless
// releaseRanges is true. If the provider is only known by its ID, nothing is removed there. The returned Removal is not nil if the
// removal has begun, even if there is an error.
func (o *Options) DisconnectNetworks(ctx context.Context, releaseRanges bool) (*Removal, error) {
	removal, err := o.disconnectNetworks(ctx, releaseRanges)
	return removal, progress.Ended(ctx, err)
}

func (o *Options) disconnectNetworks(ctx context.Context, releaseRanges bool) (*Removal, error) {
	p, err := o.inspectForRemoval(ctx)
	if err != nil {
		return nil, err
	}
	l, remove := p.beginRemoval(o), gateways.Disconnect
	if releaseRanges {
		remove = gateways.Forget
	}
	if err := remove(ctx, l.atConsumer, l.provider.ID()); err != nil {
		return l.removal(), err
	}
	if !l.provider.IsInvited() && !l.provider.IsAbsent() {
		if err := remove(ctx, l.atProvider, l.consumer.ID()); err != nil {
			return l.removal(), err
		}
	}
	return l.removal(), l.end(ctx, nothingLeft)
}

// RotateKeys replaces the keys of the gateways between two clusters, and returns when the gateways are connected again. A dry run
// only finds the gateways.
func (o *Options) RotateKeys(ctx context.Context) error {
	return progress.Ended(ctx, o.rotateKeys(ctx))
}

func (o *Options) rotateKeys(ctx context.Context) error {
	p, err := o.inspect(ctx)
	if err != nil {
		return err
	}
	_, link, err := p.findNetworks(ctx, o)
	if err != nil {
		return err
	}
	if err := errors.Join(link.Check(ctx), link.CheckRotation(ctx)); err != nil || o.DryRun {
		return err
	}
	if err := link.Rotate(ctx, cluster.NewWriter(p.consumer), cluster.NewWriter(p.provider)); err != nil {
		return err
	}
	return link.AwaitConnected(ctx)
}
