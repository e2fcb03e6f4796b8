// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/negotiation"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/identity"
	"github.com/refract-project/refract/internal/refractctl/podnetwork"
)

// terms are all settings that a run uses to join the clusters: the user's settings, the settings of an existing
// peering, and defaults. As a result, running the command again, for example to renew credentials, changes nothing
// else.
type terms struct {
	nodeTerms
	// given are the resources that the user has set.
	given       corev1.ResourceList
	credentials identity.Kind
	address     *identity.Address
	network     podnetwork.Settings
	tolerance   podnetwork.Tolerance
}

// nodeTerms are the settings of the virtual node.
type nodeTerms struct {
	name      string
	resources corev1.ResourceList
	node      NodeOptions
	accepted  negotiation.Acceptance
	// presentLabels are the labels of the existing virtual node.
	presentLabels map[string]string
	// declaredRanges are the provider's pod ranges. They were set by the user or recorded on the existing virtual node.
	declaredRanges []netip.Prefix
}

// settleTerms returns the settings of the user, completed with the settings of an existing peering.
func (p *pair) settleTerms(ctx context.Context, o *Options) (*terms, error) {
	node, err := p.settleNode(ctx, o)
	if err != nil {
		return nil, err
	}
	network, isJoined, err := p.settleNetwork(ctx, o.Network, node.declaredRanges)
	if err != nil {
		return nil, err
	}
	address, credentials, err := p.settleAccess(ctx, o)
	if err != nil {
		return nil, err
	}
	node.declaredRanges = network.ProviderRanges
	return &terms{nodeTerms: *node, given: o.Resources, credentials: credentials, address: address, network: network,
		tolerance: podnetwork.Tolerance{IsJoined: isJoined, IsUnchanged: isJoined && !o.Network.AreSet()}}, nil
}

// settleNetwork returns the settings of the network. Settings that the user has not set are taken from the existing
// peering.
func (p *pair) settleNetwork(ctx context.Context, settings podnetwork.Settings, declared []netip.Prefix) (podnetwork.Settings, bool, error) {
	settings.ProviderRanges = declared
	return settings.Keep(ctx, p.consumer, p.provider)
}

// nameNode returns the name of the virtual node. If the user has not set it, it is the name of the provider's only
// virtual node. If the provider has no virtual node, or one with the provider's ID as its name, it is this ID. nameNode
// fails if the provider has several virtual nodes with other names.
func (p *pair) nameNode(ctx context.Context, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	byDefault := p.provider.ID()
	all := &offloading.VirtualNodeList{}
	if err := p.consumer.Client.List(ctx, all, client.InNamespace(wire.TenantNamespace(p.provider.ID()))); err != nil {
		return "", fmt.Errorf("cluster %s: listing VirtualNodes, %w", p.consumer.Name, err)
	}
	var names []string
	for i := range all.Items {
		if vn := &all.Items[i]; cluster.IsOurs(vn) && string(vn.Spec.ClusterID) == p.provider.ID() {
			names = append(names, vn.Name)
		}
	}
	switch {
	case len(names) == 0 || slices.Contains(names, byDefault):
		return byDefault, nil
	case len(names) == 1:
		return names[0], nil
	}
	return "", fmt.Errorf("cluster %s: provider %s has the virtual nodes %s: name one of them, or a new one, with --virtual-node", p.consumer.Name, p.provider.ID(), strings.Join(names, ", "))
}

// settleNode returns the settings of the virtual node. Settings that the user has not set are taken from the existing
// virtual node.
func (p *pair) settleNode(ctx context.Context, o *Options) (*nodeTerms, error) {
	name, err := p.nameNode(ctx, o.VirtualNode)
	if err != nil {
		return nil, err
	}
	t := &nodeTerms{name: name, node: o.Node, accepted: o.AcceptedLabels, declaredRanges: o.Network.ProviderRanges}
	vn := &offloading.VirtualNode{}
	key := client.ObjectKey{Namespace: wire.TenantNamespace(p.provider.ID()), Name: name}
	err = p.consumer.Client.Get(ctx, key, vn)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("cluster %s: getting VirtualNode %s, %w", p.consumer.Name, key, err)
	}
	if err != nil || !cluster.IsOurs(vn) {
		t.resources, err = p.completeResources(o.Resources, DefaultResources())
		return t, err
	}
	request, err := negotiation.Requested(vn)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: VirtualNode %s, %w", p.consumer.Name, key, err)
	}
	requested, err := p.requestedResources(ctx, vn, request)
	if err != nil {
		return nil, err
	}
	if t.resources, err = p.completeResources(o.Resources, requested); err != nil {
		return nil, err
	}
	t.node.keep(&vn.Spec, request)
	if p.provider.RunsLiqo {
		// The selector of the provider is not kept, because the provider will send it again.
		t.node.NodeSelector = nil
	}
	t.presentLabels = vn.Spec.Labels
	if t.accepted == nil {
		if t.accepted, err = negotiation.AcceptedLabels(vn); err != nil {
			return nil, fmt.Errorf("cluster %s: VirtualNode %s, %w", p.consumer.Name, key, err)
		}
	}
	if len(t.declaredRanges) == 0 {
		t.declaredRanges, err = p.presentRanges(vn)
	}
	return t, err
}

// completeResources adds the amounts in others for resources that the user has not set. With an invitation, it uses the
// resources of the invitation in place of others, because a provider changes the resources by sending a new invitation.
func (p *pair) completeResources(given, others corev1.ResourceList) (corev1.ResourceList, error) {
	if p.provider.IsInvited() {
		return p.provider.Invitation.LimitResources(given)
	}
	return overlay(others, given), nil
}

// overlay returns the amounts in resources, overridden by the amounts in others.
func overlay(resources, others corev1.ResourceList) corev1.ResourceList {
	all := corev1.ResourceList{}
	maps.Copy(all, resources)
	maps.Copy(all, others)
	return all
}

// enforcedResources returns the limits that the provider enforces for the consumer, which are the existing limits or
// the default resources, changed by the user's settings. They must not depend on objects on the consumer. Otherwise, a
// user who may edit a VirtualNode on the consumer could be granted more by the next run of a command.
func (p *pair) enforcedResources(ctx context.Context, given corev1.ResourceList) (corev1.ResourceList, error) {
	quota := p.tenant.Quota(nil)
	err := p.provider.Client.Get(ctx, client.ObjectKeyFromObject(quota), quota)
	switch {
	case err == nil && cluster.IsOurs(quota):
		return overlay(quota.Spec.Resources, given), nil
	case err == nil || apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err):
		return overlay(DefaultResources(), given), nil
	}
	return nil, fmt.Errorf("cluster %s: getting Quota %s, %w", p.provider.Name, client.ObjectKeyFromObject(quota), err)
}

// requestedResources returns the resources that were requested for a virtual node. They may exceed the resources that
// the provider has granted.
func (p *pair) requestedResources(ctx context.Context, vn *offloading.VirtualNode, request *negotiation.Request) (corev1.ResourceList, error) {
	if p.provider.RunsLiqo {
		slice := p.liqoSlice(vn.Name, nil)
		err := p.provider.Client.Get(ctx, client.ObjectKeyFromObject(slice), slice)
		if err == nil {
			return slice.Spec.Resources, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("cluster %s: getting ResourceSlice %s, %w", p.provider.Name, client.ObjectKeyFromObject(slice), err)
		}
	}
	if request != nil && request.Follows(negotiation.ResourceQuota) {
		return request.Resources, nil
	}
	return vn.Spec.ResourceQuota.Hard, nil // they do not follow an offer
}

// keep adds the settings of an earlier command that this command does not set. It leaves out fields that follow the
// provider or that another client has written.
func (n *NodeOptions) keep(spec *offloading.VirtualNodeSpec, request *negotiation.Request) {
	if patch := spec.OffloadingPatch; patch != nil {
		if len(n.NodeSelector) == 0 {
			n.NodeSelector = patch.NodeSelector
		}
		if n.RuntimeClass == "" && patch.RuntimeClassName != nil {
			n.RuntimeClass = *patch.RuntimeClassName
		}
	}
	if request == nil {
		return
	}
	if len(n.StorageClasses) == 0 && request.IsFixed(negotiation.StorageClasses) {
		n.StorageClasses = spec.StorageClasses
	}
	if len(n.IngressClasses) == 0 && request.IsFixed(negotiation.IngressClasses) {
		n.IngressClasses = spec.IngressClasses
	}
	if len(n.LoadBalancerClasses) == 0 && request.IsFixed(negotiation.LoadBalancerClasses) {
		n.LoadBalancerClasses = spec.LoadBalancerClasses
	}
	if len(n.Labels) == 0 && request.IsFixed(negotiation.Labels) {
		n.Labels = spec.Labels
	}
}

// presentRanges returns the provider's pod ranges that an earlier command has recorded on the virtual node.
func (p *pair) presentRanges(vn *offloading.VirtualNode) (ranges []netip.Prefix, err error) {
	declared := vn.Annotations[wire.RangesAnnotation]
	if declared == "" {
		return nil, nil
	}
	for text := range strings.SplitSeq(declared, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("cluster %s: VirtualNode %s: annotation %s: %q is not in CIDR notation: correct it, or set --remote-pod-cidrs",
				p.consumer.Name, client.ObjectKeyFromObject(vn), wire.RangesAnnotation, text)
		}
		ranges = append(ranges, prefix)
	}
	return ranges, nil
}

// settleAccess returns the address at which the consumer reaches the provider, if it was set, and the kind of
// credentials. The default address is read from the kubeconfig again, because it may have changed.
func (p *pair) settleAccess(ctx context.Context, o *Options) (*identity.Address, identity.Kind, error) {
	address := p.address(o)
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: wire.TenantNamespace(p.provider.ID()), Name: identity.SecretName(p.provider.ID())}
	err := p.consumer.Client.Get(ctx, key, secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, "", fmt.Errorf("cluster %s: getting Secret %s, %w", p.consumer.Name, key, err)
	}
	if err != nil || !cluster.IsOurs(secret) {
		return address, p.defaultKind(o.Credentials), nil
	}
	if set := secret.Annotations[wire.APIServerURLAnnotation]; set != "" && address.ChosenURL == "" {
		p.Report("%s: keeping the address %s of %s; change it with %s", p.consumer.ID(), set, p.provider.ID(), address.FlagName())
		// The address may be reachable only from the consumer.
		address.ChosenURL, address.IsUnchecked = set, true
	}
	kind := o.Credentials
	if kind == "" && !p.provider.IsInvited() {
		if config, err := connection.Parse(secret.Data[wire.KubeconfigSecretKey]); err == nil && len(config.CertData) > 0 {
			kind = identity.Certificates
		}
	}
	return address, p.defaultKind(kind), nil
}

// defaultKind returns the kind of credentials to use. For a provider that runs Liqo, this is always certificates,
// because it issues nothing else. For any other provider, it is the given kind or, if none is given, tokens.
func (p *pair) defaultKind(kind identity.Kind) identity.Kind {
	if p.provider.RunsLiqo {
		return identity.Certificates
	}
	return cmp.Or(kind, identity.Tokens)
}
