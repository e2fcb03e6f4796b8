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
	// ProviderID is the ID that the provider must have. "" accepts any ID.
	ProviderID string
	// VirtualNode is the name of the virtual node. The default is the provider's only virtual node, or else the ID of
	// the provider.
	VirtualNode string
	// Credentials is the kind of the consumer's credentials on the provider. The default is the kind of the existing
	// peering, or tokens.
	Credentials Credentials
	// Resources are offered by the virtual node and enforced by the provider. Resources that are not set stay unchanged;
	// for a new virtual node their default is DefaultResources. With an invitation the default and the maximum are the
	// resources of the invitation.
	Resources corev1.ResourceList
	// TenantLimits are limits of the consumer on the provider, by the name of the setting. A nil value removes a limit,
	// so that the provider's default applies. Other limits stay unchanged.
	TenantLimits map[string]*string
	// Node contains further settings of the virtual node.
	Node NodeOptions
	// AcceptedLabels lists the labels that the provider may offer for the virtual node. The default is the list of the
	// existing virtual node, or an empty list.
	AcceptedLabels negotiation.Acceptance
	// APIServerURL is the address of the provider's API server for the pods of the consumer. The default is the address
	// of the existing peering, or the address in the kubeconfig.
	APIServerURL string
	// UncheckedURL skips the request to APIServerURL from this computer, for an address that only the consumer can
	// reach.
	UncheckedURL bool
	// Network is the network between the pods of the clusters. The default is the network of the existing peering, or
	// the network mode of the consumer's installation.
	Network plugins.NetworkMode
	// ConsumerRanges and ProviderRanges are the pod ranges of the clusters. The default is the pod ranges of their
	// nodes. If ProviderRanges is set, pod addresses outside of it are not reflected.
	ConsumerRanges, ProviderRanges []netip.Prefix
	// OverlappingRanges skips the check that pod ranges do not overlap, for a network that translates addresses between
	// the clusters. The setting is kept for a peering.
	OverlappingRanges *bool
	// DryRun runs all checks and changes nothing.
	DryRun bool
	// DeleteData confirms, for Unpeer, that the data of volumes with the reclaim policy Delete is deleted on the
	// provider.
	DeleteData bool
	// given contains the Resources that the user has set.
	given corev1.ResourceList
	// joined is set if a peering already exists.
	joined bool
	// networkKept is set if no flag changes the network of an existing peering.
	networkKept bool
	// reverse is set if the clusters are also joined in the other direction.
	reverse bool
	// renews is set if the provider renews the certificate of the consumer.
	renews  bool
	network plugins.NetworkMode
	// ranges and serviceRanges are the known pod ranges and cluster IP ranges of each cluster.
	ranges, serviceRanges map[*Cluster][]netip.Prefix
	// otherSecret is the name of the Secret with the kubeconfig of a virtual node that refractctl has not created. It is
	// empty if refractctl has created the node.
	otherSecret string
	// pullSecrets are the image pull secrets of the consumer's installation. The image of the virtual kubelet is pulled
	// with them.
	pullSecrets []*corev1.Secret
	// offer is the offer of the provider, nil as long as the provider has not answered.
	offer *negotiation.Offer
	// nodeLabels are the labels of the existing virtual node.
	nodeLabels map[string]string
	// nodeAccess is the separate kubeconfig of the virtual kubelet, empty if it uses the kubeconfig of the controllers.
	nodeAccess []byte

	// Progress is called with a line for each step, and for each condition that the command waits for. Lines have no
	// newline. Progress may be nil.
	Progress func(line string)
}

// Peer joins the clusters and returns when the virtual node is Ready. It may be called again: existing objects stay,
// and credentials with less than a third of their lifetime left are replaced. If Peer fails, it removes the objects
// that it has created. If ctx ends, the objects stay, so that the next call continues.
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

// prepare prepares both clusters for a virtual node, and creates it.
func (o *Options) prepare(ctx context.Context) error {
	o.Consumer.created, o.Provider.created = nil, nil
	if err := o.admitConsumer(ctx); err != nil {
		return err
	}
	if err := o.Consumer.makeTenant(ctx, o.Provider); err != nil {
		return err
	}
	// The provider may refuse the credentials. So they are requested before any existing object is changed.
	access, isNew, err := o.identity(ctx)
	if err != nil {
		return err
	}
	if err := o.grant(ctx); err != nil {
		return err
	}
	return o.prepareConsumer(ctx, access, isNew)
}

// admitConsumer creates the consumer's namespace and permissions on the provider. A new consumer has no
// credentials for them yet.
func (o *Options) admitConsumer(ctx context.Context) error {
	if o.Provider.invitation != nil {
		// The administrator of the provider has already admitted the consumer.
		return nil
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

// holdFirst creates the Quota, if it does not exist, before the consumer gets permissions, because the consumer may
// still have credentials of an earlier peering.
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

// hold sets the Quota to the resources that are granted to the consumer.
func (o *Options) hold(ctx context.Context) error {
	resources, err := o.grants(ctx)
	if err != nil {
		return err
	}
	return o.Provider.apply(ctx, o.quota(resources))
}

// grant grants the resources that the consumer requests of the provider, and records the network between their pods.
func (o *Options) grant(ctx context.Context) error {
	if o.Provider.invitation != nil || o.Provider.liqo {
		return nil
	}
	if !o.Provider.installation.HoldsToQuotas {
		o.say("%s: warning: quotas are not enforced here (webhook.enabled, controllerManager.config.enableResourceEnforcement), %s may use more than its virtual node shows",
			o.Provider.ID(), o.Consumer.ID())
		if err := o.Provider.remove(ctx, o.quota(nil)); err != nil { // left by an earlier peering
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

// awaitReady waits until pods can be scheduled on the virtual node.
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

// withoutNode returns the controllers' conditions about a virtual node whose Node does not exist yet.
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

// unfinished returns the message of the condition that the controllers still wait for with the virtual node. It
// returns "" if they wait for no condition, or have not reported any yet.
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
