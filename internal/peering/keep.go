// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/connection"
	"github.com/refract-project/refract/internal/negotiation"
)

// DefaultResources returns the resources that are requested for a new virtual node, unless the user has set others.
func DefaultResources() corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
}

// keep takes over the settings of an existing peering that the user has not set, so that running the command again,
// for example to renew credentials, changes nothing else.
func (o *Options) keep(ctx context.Context) error {
	o.given = maps.Clone(o.Resources)
	o.networkKept = o.Network == "" && o.OverlappingRanges == nil && len(o.ConsumerRanges)+len(o.ProviderRanges) == 0
	if err := o.keepNode(ctx); err != nil {
		return err
	}
	if err := o.keepNetwork(ctx); err != nil {
		return err
	}
	return o.keepAccess(ctx)
}

// nameNode finds the virtual node if the user has not named one: the only virtual node of the provider, or else the
// one that has the provider's name.
func (o *Options) nameNode(ctx context.Context) error {
	if o.VirtualNode != "" {
		return nil
	}
	o.VirtualNode = o.Provider.ID()
	all := &offloading.VirtualNodeList{}
	if err := o.Consumer.Client.List(ctx, all, client.InNamespace(wire.TenantNamespace(o.Provider.ID()))); err != nil {
		return fmt.Errorf("cluster %s: listing VirtualNodes, %w", o.Consumer.Name, err)
	}
	var names []string
	for i := range all.Items {
		if vn := &all.Items[i]; IsOurs(vn) && string(vn.Spec.ClusterID) == o.Provider.ID() {
			names = append(names, vn.Name)
		}
	}
	switch {
	case len(names) == 0 || slices.Contains(names, o.VirtualNode):
	case len(names) == 1:
		o.VirtualNode = names[0]
	default:
		return fmt.Errorf("cluster %s: provider %s has the virtual nodes %s: name one of them, or a new one, with --virtual-node", o.Consumer.Name, o.Provider.ID(), strings.Join(names, ", "))
	}
	return nil
}

// keepNode keeps the settings of the virtual node.
func (o *Options) keepNode(ctx context.Context) error {
	if err := o.nameNode(ctx); err != nil {
		return err
	}
	vn := &offloading.VirtualNode{}
	key := client.ObjectKey{Namespace: wire.TenantNamespace(o.Provider.ID()), Name: o.VirtualNode}
	err := o.Consumer.Client.Get(ctx, key, vn)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cluster %s: getting VirtualNode %s, %w", o.Consumer.Name, key, err)
	}
	if err != nil || !IsOurs(vn) {
		return o.fill(DefaultResources())
	}
	request, err := negotiation.Requested(vn)
	if err != nil {
		return fmt.Errorf("cluster %s: VirtualNode %s, %w", o.Consumer.Name, key, err)
	}
	requested, err := o.requested(ctx, vn, request)
	if err != nil {
		return err
	}
	if err := o.fill(requested); err != nil {
		return err
	}
	o.Node.keep(&vn.Spec, request)
	o.nodeLabels = vn.Spec.Labels
	if err := o.keepAccepted(vn); err != nil {
		return fmt.Errorf("cluster %s: VirtualNode %s, %w", o.Consumer.Name, key, err)
	}
	if o.Provider.liqo {
		// The selector is the provider's own setting, which the provider sends again.
		o.Node.NodeSelector = nil
	}
	return o.keepRanges(vn)
}

// fill adds resources that the user has not set. With an invitation, its resources replace the other ones, because a
// provider changes the resources with a new invitation.
func (o *Options) fill(others corev1.ResourceList) (err error) {
	if o.Provider.invitation != nil {
		o.Resources, err = o.Provider.invitation.fits(o.Resources)
		return err
	}
	o.Resources = overlay(others, o.Resources)
	return nil
}

// overlay returns resources, replaced by the others where both have a value.
func overlay(resources, others corev1.ResourceList) corev1.ResourceList {
	all := corev1.ResourceList{}
	maps.Copy(all, resources)
	maps.Copy(all, others)
	return all
}

// grants returns the limits that the provider enforces for the consumer: the existing limits, changed by the user's
// settings. It does not depend on the consumer's own objects: a user who may edit a VirtualNode there must not be
// granted more by the next run of a command.
func (o *Options) grants(ctx context.Context) (corev1.ResourceList, error) {
	quota := o.quota(nil)
	err := o.Provider.Client.Get(ctx, client.ObjectKeyFromObject(quota), quota)
	switch {
	case err == nil && IsOurs(quota):
		return overlay(quota.Spec.Resources, o.given), nil
	case err == nil || apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err):
		return overlay(DefaultResources(), o.given), nil
	}
	return nil, fmt.Errorf("cluster %s: getting Quota %s, %w", o.Provider.Name, client.ObjectKeyFromObject(quota), err)
}

// requested returns the resources that were requested for a virtual node. They may exceed the granted ones.
func (o *Options) requested(ctx context.Context, vn *offloading.VirtualNode, request *negotiation.Request) (corev1.ResourceList, error) {
	if o.Provider.liqo {
		slice := o.sliceObject(vn.Name)
		err := o.Provider.Client.Get(ctx, client.ObjectKeyFromObject(slice), slice)
		if err == nil {
			return slice.Spec.Resources, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("cluster %s: getting ResourceSlice %s, %w", o.Provider.Name, client.ObjectKeyFromObject(slice), err)
		}
	}
	if request != nil && request.Follows(negotiation.ResourceQuota) {
		return request.Resources, nil
	}
	return vn.Spec.ResourceQuota.Hard, nil // created by a user
}

// keep takes over the settings of an earlier command that this command has not set. Fields that follow the provider,
// or that somebody else has written, need not be kept.
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

// keepRanges keeps the ranges of the provider's pods that an earlier command has set.
func (o *Options) keepRanges(vn *offloading.VirtualNode) error {
	declared := vn.Annotations[wire.RangesAnnotation]
	if declared == "" || len(o.ProviderRanges) > 0 {
		return nil
	}
	for text := range strings.SplitSeq(declared, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return fmt.Errorf("cluster %s: VirtualNode %s: annotation %s: %q is not in CIDR notation: correct it, or set --remote-pod-cidrs",
				o.Consumer.Name, client.ObjectKeyFromObject(vn), wire.RangesAnnotation, text)
		}
		o.ProviderRanges = append(o.ProviderRanges, prefix)
	}
	return nil
}

// keepNetwork takes over the settings of the PeerNetwork: the mode, the declared ranges, and whether they may
// overlap.
func (o *Options) keepNetwork(ctx context.Context) error {
	declared := &plugins.PeerNetwork{}
	key := client.ObjectKey{Namespace: wire.TenantNamespace(o.Provider.ID()), Name: o.Provider.ID()}
	err := o.Consumer.Client.Get(ctx, key, declared)
	if apimeta.IsNoMatchError(err) || client.IgnoreNotFound(err) == nil && err != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cluster %s: getting PeerNetwork %s, %w", o.Consumer.Name, key, err)
	}
	o.joined = true
	if o.Network == "" {
		o.Network = declared.Spec.Mode
	}
	if o.OverlappingRanges == nil {
		o.OverlappingRanges = ptr.To(declared.Annotations[wire.OverlappingRangesAnnotation] == "true")
	}
	set := strings.Split(declared.Annotations[wire.DeclaredRangesAnnotation], ",")
	if len(o.ConsumerRanges) == 0 && slices.Contains(set, declaredLocal) {
		o.ConsumerRanges = prefixes(declared.Spec.Local.PodCIDRs)
	}
	if len(o.ProviderRanges) == 0 && slices.Contains(set, declaredRemote) {
		o.ProviderRanges = prefixes(declared.Spec.Remote.PodCIDRs)
	}
	return nil
}

// declaredLocal and declaredRemote are the values in the list of wire.DeclaredRangesAnnotation.
const declaredLocal, declaredRemote = "local", "remote"

// declares returns the value of wire.DeclaredRangesAnnotation for the ranges that the user has set.
func (o *Options) declares() string {
	var set []string
	if len(o.ConsumerRanges) > 0 {
		set = append(set, declaredLocal)
	}
	if len(o.ProviderRanges) > 0 {
		set = append(set, declaredRemote)
	}
	return strings.Join(set, ",")
}

// prefixes parses ranges that the API server has validated.
func prefixes(cidrs []plugins.CIDR) (ranges []netip.Prefix) {
	for _, cidr := range cidrs {
		if prefix, err := netip.ParsePrefix(string(cidr)); err == nil {
			ranges = append(ranges, prefix)
		}
	}
	return ranges
}

// keepAccess takes over the kind of the credentials, and the address at which the consumer reaches the provider if
// it was set. The default address is read from the kubeconfig again, because it may have changed there.
func (o *Options) keepAccess(ctx context.Context) error {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: wire.TenantNamespace(o.Provider.ID()), Name: secretName(o.Provider.ID())}
	err := o.Consumer.Client.Get(ctx, key, secret)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cluster %s: getting Secret %s, %w", o.Consumer.Name, key, err)
	}
	if err != nil || !IsOurs(secret) {
		return nil
	}
	if set := secret.Annotations[wire.APIServerURLAnnotation]; set != "" && o.APIServerURL == "" {
		o.say("%s: keeping the address %s of %s; change it with %s", o.Consumer.ID(), set, o.Provider.ID(), o.serverFlag())
		// The address may be reachable only from the consumer.
		o.APIServerURL, o.UncheckedURL = set, true
	}
	if o.Credentials != "" || o.Provider.invitation != nil {
		return nil
	}
	if config, err := connection.Parse(secret.Data[wire.KubeconfigSecretKey]); err == nil && len(config.CertData) > 0 {
		o.Credentials = Certificates
	}
	return nil
}
