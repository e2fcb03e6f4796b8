// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/clientcert"
	"github.com/refract-project/refract/internal/cmdutil"
	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/gateways"
	"github.com/refract-project/refract/internal/refractctl/identity"
	"github.com/refract-project/refract/internal/refractctl/podnetwork"
	"github.com/refract-project/refract/internal/refractctl/tenant"
)

// Joined is the result of joining two clusters, or of creating one more virtual node.
type Joined struct {
	// Consumer and Provider are the IDs of the clusters.
	Consumer, Provider string
	// VirtualNode is the name of the virtual node.
	VirtualNode string
}

// Peer joins the clusters and returns when the virtual node is Ready. It may be called again: existing objects are
// kept, and credentials are replaced if less than a third of their lifetime is left. If Peer fails before it waits for
// the virtual node, it removes the objects that it has created. If ctx ends, it keeps the objects, so that the next
// call can continue. A dry run ends after the checks.
func (o *Options) Peer(ctx context.Context) (*Joined, error) {
	joined, err := o.peer(ctx)
	return joined, progress.Ended(ctx, err)
}

func (o *Options) peer(ctx context.Context) (*Joined, error) {
	p, err := o.inspect(ctx)
	if err != nil {
		return nil, err
	}
	t, err := p.settleTerms(ctx, o)
	if err != nil {
		return nil, err
	}
	network, err := podnetwork.Learn(ctx, p.consumer, p.provider, t.network)
	if err != nil {
		return nil, err
	}
	link, err := p.findLink(ctx, network, o.Gateways)
	if err != nil {
		return nil, err
	}
	if link == nil {
		if err := p.warnOfGateways(ctx, network.Mode); err != nil {
			return nil, err
		}
	}
	pullSecrets, err := p.checkJoin(ctx, t, network, link, o.TenantLimits)
	if err != nil {
		return nil, err
	}
	p.Report("consumer %s (%s) and provider %s (%s) can be joined", p.consumer.ID(), p.consumer.Name, p.provider.ID(), p.provider.Name)
	joined := &Joined{Consumer: p.consumer.ID(), Provider: p.provider.ID(), VirtualNode: t.name}
	if o.DryRun {
		return joined, nil
	}
	j := p.beginJoin()
	if err := j.join(ctx, t, network, link, pullSecrets, o.TenantLimits); err != nil {
		return nil, j.takeBack(ctx, err, "refractctl peer", "refractctl unpeer")
	}
	if link != nil {
		if err := link.AwaitConnected(ctx); err != nil {
			return nil, err
		}
	}
	return joined, p.awaitReady(ctx, t.name)
}

// findLink returns the link of gateways between the clusters. It is nil if no gateways connect them. It returns an error if the user has
// set gateways, but not the network that uses them.
func (p *pair) findLink(ctx context.Context, network *podnetwork.Network, settings gateways.Settings) (*gateways.Link, error) {
	if network.Mode != plugins.GatewayNetwork {
		if settings.IsSet() {
			return nil, fmt.Errorf("the flags of gateways need --network=gateway, but the network is %q", network.Mode)
		}
		return nil, nil //nolint:nilnil // as documented
	}
	clusters := gateways.Clusters{Consumer: p.consumer, Provider: p.provider, ConsumerRanges: network.Settings.ConsumerRanges, ProviderRanges: network.Settings.ProviderRanges}
	return gateways.Find(ctx, clusters, settings, p.Reporter)
}

// warnOfGateways warns if gateways connect the clusters although their network is another one. They are not removed,
// because connections may still use them.
func (p *pair) warnOfGateways(ctx context.Context, mode plugins.NetworkMode) error {
	states, err := gateways.List(ctx, p.consumer)
	if err != nil {
		return err
	}
	for i := range states {
		if s := &states[i]; s.Peer == p.provider.ID() && s.Gateway != "" {
			p.Report("warning: the network is %s, but %s and the gateway of %s keep running: remove them with refractctl network disconnect %s",
				mode, s.Gateway, s.Peer, s.Peer)
		}
	}
	return nil
}

// joining is a run that writes to both clusters. It records the objects that it creates, so that it can remove them
// again.
type joining struct {
	*pair
	atConsumer, atProvider *cluster.Writer
}

func (p *pair) beginJoin() *joining {
	return &joining{pair: p, atConsumer: cluster.NewWriter(p.consumer), atProvider: cluster.NewWriter(p.provider)}
}

// join prepares both clusters for a virtual node, and creates it.
func (j *joining) join(ctx context.Context, t *terms, network *podnetwork.Network, link *gateways.Link, pullSecrets []*corev1.Secret, limits tenant.Limits) error {
	if err := j.admitConsumer(ctx, t.given, limits); err != nil {
		return err
	}
	if err := j.atConsumer.CreateTenant(ctx, j.provider); err != nil {
		return err
	}
	// The provider may refuse to issue credentials, so they are requested before any existing object is changed.
	access, err := t.address.Obtain(ctx, j.issuer(t.credentials))
	if err != nil {
		return err
	}
	renews, err := j.grant(ctx, t, network)
	if err != nil {
		return err
	}
	if err := j.storeAccess(ctx, t, access, renews); err != nil {
		return err
	}
	if err := network.Declare(ctx, j.atConsumer, j.Reporter); err != nil {
		return err
	}
	// The virtual kubelet needs the ranges of the Configuration when it starts.
	if link != nil {
		if err := link.Connect(ctx, j.atConsumer, j.atProvider); err != nil {
			return err
		}
	}
	offered, err := j.learnOffer(ctx, t)
	if err != nil {
		return err
	}
	return j.createNode(ctx, offered, network, pullSecrets)
}

// admitConsumer creates the consumer's namespace and permissions on the provider. A new consumer cannot use them yet,
// because it has no credentials.
func (j *joining) admitConsumer(ctx context.Context, given corev1.ResourceList, limits tenant.Limits) error {
	if j.provider.IsInvited() {
		// The administrator of the provider has admitted the consumer with the invitation.
		return nil
	}
	j.Report("%s: admitting consumer %s, in namespace %s", j.provider.ID(), j.consumer.ID(), j.tenant.Namespace())
	if err := j.atProvider.CreateTenant(ctx, j.consumer); err != nil || j.provider.RunsLiqo {
		return err
	}
	// The limits are applied before the consumer gets permissions.
	if err := j.tenant.SetLimits(ctx, limits); err != nil {
		return err
	}
	if err := j.createQuota(ctx, given); err != nil {
		return err
	}
	return j.atProvider.Apply(ctx, j.tenant.Access()...)
}

// createQuota creates the Quota if it does not exist. It is called before the consumer gets permissions, because the
// consumer may still have credentials of an earlier peering.
func (j *joining) createQuota(ctx context.Context, given corev1.ResourceList) error {
	if !j.provider.Installation.HoldsToQuotas {
		return nil
	}
	found, _, err := j.provider.Find(ctx, j.tenant.Quota(nil))
	if err != nil || found != nil {
		return err
	}
	return j.applyQuota(ctx, given)
}

// applyQuota sets the Quota to the resources that are granted to the consumer.
func (j *joining) applyQuota(ctx context.Context, given corev1.ResourceList) error {
	resources, err := j.enforcedResources(ctx, given)
	if err != nil {
		return err
	}
	return j.atProvider.Apply(ctx, j.tenant.Quota(resources))
}

// issuer returns the Issuer of credentials of the given kind for the consumer.
func (j *joining) issuer(kind identity.Kind) identity.Issuer {
	switch {
	case j.provider.RunsLiqo:
		return liqoIssuer{j}
	case kind == identity.Certificates:
		return identity.CertificateIssuer{Tenant: j.tenant}
	}
	return identity.TokenIssuer{Tenant: j.tenant, Lifetime: identity.TokenLifetime}
}

// grant grants the resources that the consumer requests from the provider, and records the network between the
// clusters' pods. It reports whether the provider renews the certificate of the consumer.
func (j *joining) grant(ctx context.Context, t *terms, network *podnetwork.Network) (renews bool, err error) {
	if j.provider.IsInvited() || j.provider.RunsLiqo {
		return false, nil
	}
	if err := j.enforceQuota(ctx, t.given); err != nil {
		return false, err
	}
	if renews, err = j.declareRenewal(ctx, t.credentials); err != nil {
		return false, err
	}
	if err := j.requestNode(ctx, t.name, t.resources); err != nil {
		return false, err
	}
	return renews, network.Declare(ctx, j.atProvider, j.Reporter)
}

// enforceQuota sets the Quota. If the provider does not enforce Quotas, it removes the Quota instead.
func (j *joining) enforceQuota(ctx context.Context, given corev1.ResourceList) error {
	if j.provider.Installation.HoldsToQuotas {
		return j.applyQuota(ctx, given)
	}
	j.Report("%s: warning: quotas are not enforced here (webhook.enabled, controllerManager.config.enableResourceEnforcement), %s may use more than its virtual node shows",
		j.provider.ID(), j.consumer.ID())
	return j.atProvider.Remove(ctx, j.tenant.Quota(nil)) // an earlier peering may have left the Quota
}

// declareRenewal permits the consumer to request its next certificate, or revokes this permission. A consumer that was
// invited keeps the permission, because its kind of credentials is unknown.
func (j *joining) declareRenewal(ctx context.Context, kind identity.Kind) (renews bool, err error) {
	switch kind {
	case "":
		return false, nil
	case identity.Certificates:
		return j.tenant.PermitRenewal(ctx, j.atProvider)
	}
	return false, j.tenant.RevokeRenewal(ctx, cluster.NewRemover(j.provider, false))
}

// storeAccess stores the kubeconfig on the consumer, and records on the provider which certificate it may renew.
func (j *joining) storeAccess(ctx context.Context, t *terms, access *identity.Identity, renews bool) error {
	if access.IsNew {
		j.Report("%s: gave a %s to %s", j.provider.ID(), t.credentials, j.consumer.ID())
	}
	j.reportExpiry(t.credentials, access.Expires, renews)
	if renews {
		if err := j.tenant.RecordKey(ctx, access.Kubeconfig, access.IsNew); err != nil {
			return err
		}
	}
	return j.atConsumer.Apply(ctx, j.accessSecret(t.address.ChosenURL, access.Kubeconfig, renews))
}

// learnOffer returns the provider's offer for the virtual node.
func (j *joining) learnOffer(ctx context.Context, t *terms) (*offeredNode, error) {
	if j.provider.RunsLiqo {
		return j.shareLiqoSlice(ctx, t)
	}
	return j.awaitOffer(ctx, &t.nodeTerms)
}

// shortLifetime is the lifetime of a certificate below which a warning is printed. A consumer that is unreachable for
// longer than the lifetime loses its access.
const shortLifetime = time.Hour

// shownTimePeriod is the remaining lifetime below which the time of the expiry is printed in addition to the date.
const shownTimePeriod = 2 * 24 * time.Hour

// reportExpiry reports when the credentials expire, and who renews them.
func (p *pair) reportExpiry(kind identity.Kind, expires time.Time, renews bool) {
	left := time.Until(expires)
	until := expires.UTC().Format(time.DateOnly)
	if left < shownTimePeriod {
		until = expires.UTC().Format(time.RFC3339)
	}
	advice := "the controller manager renews it before"
	switch {
	case kind == identity.Tokens || renews:
	case p.provider.RunsLiqo:
		advice = "run the command again before"
	default:
		advice = "run the command again before; it is renewed automatically if you first set authentication.enabled of the chart in " + p.provider.ID()
	}
	p.Report("%s: the %s for %s expires on %s, %s", p.consumer.ID(), kind, p.provider.ID(), until, advice)
	if kind == identity.Certificates && left < shortLifetime {
		p.Report("%s: warning: certificates signed here are valid for %s only, and %s loses its access when it is away for longer: raise --cluster-signing-duration of kube-controller-manager, or use --credentials=token",
			p.provider.ID(), left.Round(time.Minute), p.consumer.ID())
	}
}

// takeBackTimeout limits how long a failed run may take to remove the objects that it has created. Most of this time
// is needed for the deletion of a namespace.
const takeBackTimeout = 30 * time.Second

// takeBack removes the objects that this run has created in both clusters, after the run has failed with err. It
// returns err together with a list of the remaining objects. After an interruption or a timeout, it keeps all objects,
// so that the command can continue when it is run again. The argument again is the command that continues the run, and
// undo is the command that removes the remaining objects.
func (j *joining) takeBack(ctx context.Context, err error, again, undo string) error {
	if ctx.Err() != nil && !errors.Is(err, clientcert.ErrNotSigned) {
		return progress.Ended(ctx, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackTimeout)
	defer cancel()
	isUnanswered := cmdutil.Away(err)
	for _, side := range []struct {
		writer *cluster.Writer
		peer   string
	}{{j.atConsumer, j.provider.ID()}, {j.atProvider, j.consumer.ID()}} {
		if !side.writer.HasCreated() {
			continue
		}
		j.Report("%s: removing what this run has created", side.writer.ID())
		if failed := side.writer.RemoveCreated(ctx, side.peer, j.Reporter); failed != nil {
			err = fmt.Errorf("%w\n%s is left in cluster %s, which did not remove it (%w): run %s again to continue, or %s to remove it",
				err, side.writer.DescribeCreated(), side.writer.Name, failed, again, undo)
			isUnanswered = false
		}
	}
	if isUnanswered { // the last request may have been executed
		err = fmt.Errorf("%w\nrun %s again to continue, or %s to remove what is left of it", err, again, undo)
	}
	return err
}
