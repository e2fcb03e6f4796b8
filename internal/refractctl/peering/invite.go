// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/refract-project/refract/internal/refractctl/gateways"
	"github.com/refract-project/refract/internal/refractctl/identity"
	"github.com/refract-project/refract/internal/refractctl/invitation"
	"github.com/refract-project/refract/internal/refractctl/podnetwork"
)

// Invite admits a consumer on a provider, and returns a kubeconfig with an invitation. The consumer does not have to be
// accessible, because its ID is sufficient. Peer accepts this kubeconfig in place of an administrator's kubeconfig of
// the provider. The kubeconfig is valid for the given lifetime, but a peering that was created with it remains valid
// after that. Invite may be called again. If it fails, it removes the objects that it has created, as Peer does. A dry
// run ends after the checks, and returns no kubeconfig.
func (o *Options) Invite(ctx context.Context, lifetime time.Duration) (kubeconfig []byte, expires time.Time, err error) {
	p, err := o.inspectForInvitation(ctx)
	if err != nil {
		return nil, expires, err
	}
	t, err := p.settleInvitation(ctx, o)
	if err != nil {
		return nil, expires, err
	}
	network, err := podnetwork.Learn(ctx, p.consumer, p.provider, t.network)
	if err != nil {
		return nil, expires, err
	}
	link, err := p.findLink(ctx, network, o.Gateways)
	if err != nil {
		return nil, expires, err
	}
	if err := p.checkInvite(ctx, t, link, o); err != nil || o.DryRun {
		return nil, expires, err
	}
	j := p.beginJoin()
	kubeconfig, expires, err = j.invite(ctx, t, network, link, o, lifetime)
	if err != nil {
		return nil, expires, j.takeBack(ctx, err, "refractctl generate peering-user "+p.consumer.ID(), "refractctl delete peering-user "+p.consumer.ID())
	}
	return kubeconfig, expires, nil
}

// inspectForInvitation inspects only the provider. Of the consumer, only the ID is known.
func (o *Options) inspectForInvitation(ctx context.Context) (*pair, error) {
	provider, err := o.Provider.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	consumer, err := o.Consumer.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	if consumer.ID() == provider.ID() {
		return nil, fmt.Errorf("cluster %s has the id %q itself: name the consumer", provider.Name, provider.ID())
	}
	return newPair(consumer, provider, o.Progress), nil
}

// settleInvitation returns the settings of the user together with the limits that the provider already enforces. The
// kind of credentials is chosen only when the consumer is joined.
func (p *pair) settleInvitation(ctx context.Context, o *Options) (*terms, error) {
	resources, err := p.enforcedResources(ctx, o.Resources)
	if err != nil {
		return nil, err
	}
	return &terms{nodeTerms: nodeTerms{name: o.VirtualNode, resources: resources}, given: o.Resources, address: p.address(o), network: o.Network}, nil
}

// checkInvite checks whether the consumer can be invited. It changes nothing, and reports all problems together.
func (p *pair) checkInvite(ctx context.Context, t *terms, link *gateways.Link, o *Options) error {
	var linkProblem error
	if link != nil {
		linkProblem = link.Check(ctx)
	}
	return errors.Join(
		linkProblem,
		p.tenant.CheckLimits(o.TenantLimits),
		t.address.Check(ctx),
		p.checkProviderRights(ctx, o.Credentials),
		checkRoles(ctx, p.provider),
		p.checkTenantAtProvider(ctx),
		p.tenant.RequireActive(ctx),
	)
}

// invite admits the consumer and returns a kubeconfig for it.
func (j *joining) invite(ctx context.Context, t *terms, network *podnetwork.Network, link *gateways.Link, o *Options, lifetime time.Duration) (kubeconfig []byte, expires time.Time, err error) {
	if err := j.admitConsumer(ctx, t.given, o.TenantLimits); err != nil {
		return nil, expires, err
	}
	if _, err := j.grant(ctx, t, network); err != nil {
		return nil, expires, err
	}
	var gateway *invitation.Gateway
	if link != nil {
		var err error
		if gateway, err = link.Offer(ctx, j.atProvider); err != nil {
			return nil, expires, err
		}
	}
	user, expires, err := identity.TokenIssuer{Tenant: j.tenant, Lifetime: lifetime}.Issue(ctx)
	if err != nil {
		return nil, expires, fmt.Errorf("cluster %s: %w", j.provider.Name, err)
	}
	config, err := t.address.ClientConfig(user)
	if err != nil {
		return nil, expires, err
	}
	invited := invitation.Invitation{Consumer: j.consumer.ID(), Provider: j.provider.ID(), ProviderUID: j.provider.UID,
		Version: j.provider.Installation.Version, PodRanges: network.ProviderRanges.Pods, ServiceRanges: network.ProviderRanges.Services, Resources: t.resources, Gateway: gateway}
	if err := invited.Embed(config.Clusters[j.provider.ID()]); err != nil {
		return nil, expires, err
	}
	if kubeconfig, err = clientcmd.Write(*config); err != nil {
		return nil, expires, fmt.Errorf("writing the kubeconfig, %w", err)
	}
	return kubeconfig, expires, t.address.CheckKubeconfig(ctx, kubeconfig)
}
