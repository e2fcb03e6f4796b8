// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
)

// checkRanges refuses pod ranges that overlap, because an address would belong to a pod of each cluster. The check is
// left out if pods are not meant to reach each other, or if a network such as Liqo's translates addresses. Unknown
// ranges lead to a warning.
func (o *Options) checkRanges(ctx context.Context) error {
	if ptr.Deref(o.OverlappingRanges, false) || o.network == plugins.NoNetwork {
		return nil
	}
	here, there := o.ranges[o.Consumer], o.ranges[o.Provider]
	for _, side := range []struct {
		of    *Cluster
		flag  string
		known bool
	}{{o.Consumer, "--pod-cidrs", len(here) > 0}, {o.Provider, "--remote-pod-cidrs", len(there) > 0}} {
		if !side.known {
			o.say("%s: warning: the pod ranges are unknown, the nodes have no spec.podCIDRs: whether they overlap with those of the other cluster is not checked, set them with %s", side.of.ID(), side.flag)
		}
	}
	for _, one := range here {
		if at := slices.IndexFunc(there, one.Overlaps); at >= 0 {
			return o.overlap("the pod ranges overlap, %s of %s and %s of %s: pods cannot reach each other by address. Join them with --network=none, "+
				"or set --overlapping-ranges if a network between the clusters translates addresses", one, o.Consumer.Name, there[at], o.Provider.Name)
		}
	}
	return errors.Join(o.checkServiceRanges(), o.checkOtherPeers(ctx))
}

// overlap returns the error that refuses to join the clusters. It only prints a warning if the clusters are already
// joined and no flag changes their network: a running peering must not lose its credentials because of a new check.
func (o *Options) overlap(format string, arguments ...any) error {
	err := fmt.Errorf(format, arguments...)
	if !o.joined || !o.networkKept {
		return err
	}
	o.say("%s: warning: %v", o.Consumer.ID(), err)
	return nil
}

// checkOtherPeers refuses pod ranges of the provider that overlap with the pod ranges of another peer, because the
// consumer could reach only one of the two.
func (o *Options) checkOtherPeers(ctx context.Context) error {
	if o.Consumer.Client == nil {
		return nil // the provider is not accessed and its ranges are unknown
	}
	others := &plugins.PeerNetworkList{}
	err := o.Consumer.Client.List(ctx, others)
	if apimeta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cluster %s: listing PeerNetworks, %w", o.Consumer.Name, err)
	}
	for i := range others.Items {
		other := &others.Items[i].Spec
		if other.ClusterID == o.Provider.ID() || other.Mode != plugins.ReachableNetwork {
			continue
		}
		for _, cidr := range other.Remote.PodCIDRs {
			theirs, err := netip.ParsePrefix(string(cidr))
			if err != nil {
				continue
			}
			at := slices.IndexFunc(o.ranges[o.Provider], theirs.Overlaps)
			switch {
			case at >= 0 && o.joined:
				o.say("%s: warning: the pod range %s of %s overlaps with %s of its peer %s, so pods reach only one of them at such an address", o.Consumer.ID(), o.ranges[o.Provider][at], o.Provider.ID(), theirs, other.ClusterID)
			case at >= 0:
				return fmt.Errorf("the pod range %s of %s overlaps with %s of its peer %s: pods of %s reach only one of them at such an address. Join them with --network=none, "+
					"or set --overlapping-ranges if a network between the clusters translates addresses", o.ranges[o.Provider][at], o.Provider.Name, theirs, other.ClusterID, o.Consumer.Name)
			}
		}
	}
	return nil
}

// checkServiceRanges refuses pods of one cluster whose addresses are cluster IPs of the other: kube-proxy would
// redirect packets for such a pod to the Service. The cluster IPs of both clusters may be the same, because no
// cluster IP is used across clusters.
func (o *Options) checkServiceRanges() error {
	for _, side := range []struct{ pods, services *Cluster }{{o.Consumer, o.Provider}, {o.Provider, o.Consumer}} {
		for _, one := range o.ranges[side.pods] {
			all := o.serviceRanges[side.services]
			if at := slices.IndexFunc(all, one.Overlaps); at >= 0 {
				return o.overlap("the pod range %s of %s overlaps with the Service range %s of %s: pods there cannot reach pods with these addresses. Join them with --network=none, "+
					"or set --overlapping-ranges if a network between the clusters translates addresses", one, side.pods.Name, all[at], side.services.Name)
			}
		}
	}
	return nil
}

// learnNetwork determines the address ranges of the clusters, and the network between them. The default network is the
// setting of the consumer's installation.
func (o *Options) learnNetwork(ctx context.Context) error {
	o.ranges = map[*Cluster][]netip.Prefix{o.Consumer: o.ConsumerRanges, o.Provider: o.ProviderRanges}
	for c, given := range o.ranges {
		if len(given) > 0 || c.Client == nil {
			continue
		}
		found, err := c.podRanges(ctx)
		if err != nil {
			return err
		}
		o.ranges[c] = found
	}
	o.serviceRanges = map[*Cluster][]netip.Prefix{}
	for c := range o.ranges {
		if c.Client == nil {
			continue
		}
		found, err := c.serviceRanges(ctx)
		if err != nil {
			return err
		}
		o.serviceRanges[c] = found
	}
	o.network = o.Network
	if o.network != "" || o.Consumer.Client == nil {
		return nil
	}
	shows, err := o.Consumer.reflectsAddresses(ctx)
	if o.network = plugins.ReachableNetwork; !shows {
		o.network = plugins.NoNetwork
	}
	return err
}

// declareNetwork creates the PeerNetwork in a cluster, which describes the network to its peer. A PeerNetwork of a
// gateway is left unchanged.
func (o *Options) declareNetwork(ctx context.Context, c, peer *Cluster) error {
	if o.network == "" {
		return nil // the mode is known when the consumer is joined
	}
	side := func(c *Cluster) (side plugins.NetworkSide) {
		for _, prefix := range slices.SortedFunc(maps.Keys(setOf(o.ranges[c])), netip.Prefix.Compare) {
			side.PodCIDRs = append(side.PodCIDRs, plugins.CIDR(prefix.String()))
		}
		return side
	}
	network := &plugins.PeerNetwork{ObjectMeta: meta(wire.TenantNamespace(peer.ID()), peer.ID(), map[string]string{wire.RemoteClusterIDLabel: peer.ID()}),
		Spec: plugins.PeerNetworkSpec{ClusterID: peer.ID(), Mode: o.network, Local: side(c), Remote: side(peer)}}
	if c == o.Consumer {
		network.Annotations = map[string]string{}
		if ptr.Deref(o.OverlappingRanges, false) {
			network.Annotations[wire.OverlappingRangesAnnotation] = "true"
		}
		if set := o.declares(); set != "" {
			network.Annotations[wire.DeclaredRangesAnnotation] = set
		}
	}
	err := c.apply(ctx, network)
	if apimeta.IsNoMatchError(err) {
		o.say("%s: the CRD PeerNetwork is missing, the network is not recorded: upgrade this cluster with refractctl install", c.ID())
		return nil
	}
	return err
}

// setOf returns the set of the masked ranges.
func setOf(ranges []netip.Prefix) map[netip.Prefix]bool {
	set := map[netip.Prefix]bool{}
	for _, prefix := range ranges {
		set[prefix.Masked()] = true
	}
	return set
}

// reflectsAddresses reports whether virtual kubelets reflect pod addresses unchanged from the provider.
func (c *Cluster) reflectsAddresses(ctx context.Context) (bool, error) {
	templates := &offloading.VkOptionsTemplateList{}
	if err := c.Client.List(ctx, templates, client.InNamespace(c.installation.Namespace)); err != nil {
		return false, fmt.Errorf("cluster %s: listing VkOptionsTemplates, %w", c.Name, err)
	}
	for i := range templates.Items {
		if slices.Contains(templates.Items[i].Spec.ExtraArgs, "--disable-ip-reflection") {
			return false, nil
		}
	}
	liqo := &unstructured.UnstructuredList{}
	liqo.SetGroupVersionKind(schema.GroupVersionKind{Group: "networking.liqo.io", Version: "v1beta1", Kind: "ConfigurationList"})
	err := c.Client.List(ctx, liqo, client.Limit(1))
	if apimeta.IsNoMatchError(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("cluster %s: listing the Configurations of Liqo's network, %w", c.Name, err)
	}
	return len(liqo.Items) == 0, nil
}
