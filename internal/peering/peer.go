// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	nodeutil "k8s.io/component-helpers/node/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/negotiation"
	"github.com/refract-project/refract/internal/progress"
)

// Options are the clusters to join and the settings of the peering. They are not safe for concurrent use.
type Options struct {
	Consumer, Provider *Cluster
	// ProviderID is the id that the provider must have; "" is any.
	ProviderID string
	// VirtualNode is its name, by default that of the provider's only virtual node, or the id of the provider.
	VirtualNode string
	// Credentials of the consumer on the provider, by default those of the existing peering, or tokens.
	Credentials Credentials
	// Resources that the virtual node offers, and that the provider holds the consumer to. Those that are not set stay as they are, and are
	// DefaultResources for a new virtual node. With an invitation they are those of the invitation, unless they are fewer.
	Resources corev1.ResourceList
	// TenantLimits are limits of the consumer on the provider, by the name of the setting; nil removes one, so that the provider's
	// default applies. Those that are not named stay.
	TenantLimits map[string]*string
	// Node has further settings of the virtual node.
	Node NodeOptions
	// AcceptedLabels lists the labels that the provider may offer for the virtual node, by default as for the existing virtual node, or none.
	AcceptedLabels negotiation.Acceptance
	// APIServerURL is the provider's API server as pods of the consumer reach it, by default as in the existing peering, or as the kubeconfig
	// has it.
	APIServerURL string
	// UncheckedURL leaves out that APIServerURL is asked from this computer: only the consumer reaches it.
	UncheckedURL bool
	// Network connects the pods of the clusters, by default that of the existing peering, or the one that the consumer is installed with.
	Network plugins.NetworkMode
	// ConsumerRanges and ProviderRanges are those of their pods, by default those of their nodes. An address elsewhere is not shown where
	// those of the provider are given.
	ConsumerRanges, ProviderRanges []netip.Prefix
	// OverlappingRanges leaves out the check that pod ranges do not overlap: a network between the clusters translates addresses. It stays
	// set for a peering.
	OverlappingRanges *bool
	// DryRun checks, and changes nothing.
	DryRun bool
	// DeleteData confirms, for Unpeer, that the data of volumes with the reclaim policy Delete is deleted on the provider.
	DeleteData bool
	// given are the Resources that the user has set.
	given corev1.ResourceList
	// joined: there is a peering already.
	joined bool
	// networkKept: no flag changes the network of one that exists.
	networkKept bool
	// reverse: the clusters are joined in the other direction, too.
	reverse bool
	// renews: the provider renews the certificate that the consumer has.
	renews  bool
	network plugins.NetworkMode
	// ranges are those of pods, serviceRanges those of cluster IPs, as far as they are known.
	ranges, serviceRanges map[*Cluster][]netip.Prefix
	// otherSecret names the kubeconfig of a virtual node that refractctl has not created; "" if it has.
	otherSecret string
	// pullSecrets are those of the consumer's installation, with which the image of the virtual kubelet is pulled.
	pullSecrets []*corev1.Secret
	// offer of the provider, nil as long as it says nothing.
	offer *negotiation.Offer
	// nodeLabels are the labels of the existing virtual node.
	nodeLabels map[string]string
	// nodeAccess is a kubeconfig of the virtual kubelet's own, where it has one.
	nodeAccess []byte

	// Progress receives a line for each step, and for what is waited for; nil receives none. Lines have no newline.
	Progress func(line string)
}

// Peer joins the clusters and returns when the virtual node is Ready. It may be called again: what is there already stays, and
// credentials that have less than a third of their life left are replaced. When it fails it removes what it has created; when ctx ends it does
// not, so that the next call continues.
func (o *Options) Peer(ctx context.Context) error {
	if err := o.check(ctx); err != nil {
		return progress.Ended(ctx, err)
	}
	o.say("consumer %s (%s) and provider %s (%s) can be joined", o.Consumer.ID(), o.Consumer.Name, o.Provider.ID(), o.Provider.Name)
	if o.DryRun {
		return nil
	}
	if err := o.prepare(ctx); err != nil {
		return o.takeBack(ctx, err, "refractctl peer", "refractctl unpeer")
	}
	return o.awaitReady(ctx)
}

// prepare both clusters for a virtual node, and make it.
func (o *Options) prepare(ctx context.Context) error {
	o.Consumer.created, o.Provider.created = nil, nil
	if err := o.admitConsumer(ctx); err != nil {
		return err
	}
	if err := o.Consumer.makeTenant(ctx, o.Provider); err != nil {
		return err
	}
	// Before anything that exists is changed: a provider may refuse the credentials.
	access, isNew, err := o.identity(ctx)
	if err != nil {
		return err
	}
	if err := o.grant(ctx); err != nil {
		return err
	}
	return o.prepareConsumer(ctx, access, isNew)
}

// admitConsumer gives the consumer its namespace and its rights at the provider, with which it can do nothing yet.
func (o *Options) admitConsumer(ctx context.Context) error {
	if o.Provider.invitation != nil {
		return nil // its administrator has
	}
	o.say("%s: admitting consumer %s, in namespace %s", o.Provider.ID(), o.Consumer.ID(), wire.TenantNamespace(o.Consumer.ID()))
	if err := o.Provider.makeTenant(ctx, o.Consumer); err != nil || o.Provider.liqo {
		return err
	}
	// Limits apply before the consumer gets permissions.
	if err := o.setTenantLimits(ctx); err != nil {
		return err
	}
	if err := o.holdFirst(ctx); err != nil {
		return err
	}
	return o.Provider.applyAll(ctx, o.access())
}

// holdFirst creates the Quota, if there is none, before the consumer gets permissions: it may have credentials of an earlier peering.
func (o *Options) holdFirst(ctx context.Context) error {
	if !o.Provider.installation.HoldsToQuotas {
		return nil
	}
	found, _, err := o.Provider.find(ctx, o.quota(nil))
	if err != nil || found != nil {
		return err
	}
	return o.hold(ctx)
}

// hold the consumer to the Quota.
func (o *Options) hold(ctx context.Context) error {
	resources, err := o.grants(ctx)
	if err != nil {
		return err
	}
	return o.Provider.apply(ctx, o.quota(resources))
}

// grant what the consumer requests of the provider, and record how their pods reach each other.
func (o *Options) grant(ctx context.Context) error {
	if o.Provider.invitation != nil || o.Provider.liqo {
		return nil
	}
	if !o.Provider.installation.HoldsToQuotas {
		o.say("%s: warning: quotas are not enforced here (webhook.enabled, controllerManager.config.enableResourceEnforcement), %s may use more than its virtual node shows",
			o.Provider.ID(), o.Consumer.ID())
		if err := o.Provider.remove(ctx, o.quota(nil)); err != nil { // of an earlier peering
			return err
		}
	} else if err := o.hold(ctx); err != nil {
		return err
	}
	if err := o.declareRenewal(ctx); err != nil {
		return err
	}
	if err := o.ask(ctx); err != nil {
		return err
	}
	return o.declareNetwork(ctx, o.Provider, o.Consumer)
}

func (o *Options) prepareConsumer(ctx context.Context, access *identity, isNew bool) error {
	if isNew {
		o.say("%s: gave a %s to %s", o.Provider.ID(), o.Credentials, o.Consumer.ID())
	}
	o.sayExpiry(access)
	if o.renews {
		if err := o.recordKey(ctx, access.kubeconfig, isNew); err != nil {
			return err
		}
	}
	if err := o.Consumer.apply(ctx, o.secret(access.kubeconfig)); err != nil {
		return err
	}
	if err := o.declareNetwork(ctx, o.Consumer, o.Provider); err != nil {
		return err
	}
	learn := o.hear
	if o.Provider.liqo {
		learn = o.share
	}
	if err := learn(ctx); err != nil {
		return err
	}
	return o.makeNode(ctx)
}

func (c *Cluster) applyAll(ctx context.Context, objects []client.Object) error {
	for _, object := range objects {
		if err := c.apply(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// awaitReady returns when pods can be scheduled on the virtual node.
func (o *Options) awaitReady(ctx context.Context) error {
	return o.await(ctx, "virtual node "+o.VirtualNode, func(ctx context.Context) (missing string, err error) {
		node := &corev1.Node{}
		err = o.Consumer.Client.Get(ctx, client.ObjectKey{Name: o.VirtualNode}, node)
		if client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("cluster %s: getting node %s, %w", o.Consumer.Name, o.VirtualNode, err)
		}
		if err != nil {
			return o.withoutNode(ctx)
		}
		switch _, condition := nodeutil.GetNodeCondition(&node.Status, corev1.NodeReady); {
		case condition == nil:
			return "the node has no status yet", nil
		case condition.Status != corev1.ConditionTrue:
			return fmt.Sprintf("not ready: %s, %s", condition.Reason, condition.Message), nil
		}
		if missing, err := o.unfinished(ctx); missing != "" || err != nil {
			return missing, err
		}
		o.say("virtual node %s is ready", o.VirtualNode)
		return "", nil
	})
}

// withoutNode returns the controllers' conditions about a virtual node that has no Node yet.
func (o *Options) withoutNode(ctx context.Context) (string, error) {
	if missing, err := o.unfinished(ctx); missing != "" || err != nil {
		return missing, err
	}
	cluster := &core.ForeignCluster{}
	err := o.Consumer.Client.Get(ctx, client.ObjectKey{Name: o.Provider.ID()}, cluster)
	if err != nil && !apierrors.IsNotFound(err) {
		return "", fmt.Errorf("cluster %s: getting ForeignCluster %s, %w", o.Consumer.Name, o.Provider.ID(), err)
	}
	for _, condition := range cluster.Status.Conditions {
		if condition.Type == core.APIServerStatusCondition && condition.Status == core.ConditionStatusError {
			return "the provider is unreachable from the controller manager: " + condition.Message, nil
		}
	}
	return "its virtual kubelet has not registered the node yet", nil
}

// unfinished is what the controllers still wait for with the virtual node; "" when there is nothing, or nothing has been said.
func (o *Options) unfinished(ctx context.Context) (string, error) {
	vn := &offloading.VirtualNode{}
	key := client.ObjectKey{Namespace: wire.TenantNamespace(o.Provider.ID()), Name: o.VirtualNode}
	if err := o.Consumer.Client.Get(ctx, key, vn); err != nil {
		return "", fmt.Errorf("cluster %s: getting VirtualNode %s, %w", o.Consumer.Name, key, err)
	}
	for _, condition := range vn.Status.Conditions {
		if condition.Message != "" && condition.Status != offloading.RunningConditionStatus {
			return fmt.Sprintf("%s, %s", condition.Reason, condition.Message), nil
		}
	}
	return "", nil
}

func (o *Options) await(ctx context.Context, what string, look func(context.Context) (missing string, err error)) error {
	return progress.Await(ctx, func(line string) { o.say("%s", line) }, what, look)
}

func (o *Options) say(format string, arguments ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, arguments...))
	}
}
