// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package podnetwork finds out what network connects the pods of two clusters, checks that the address ranges of the
// clusters are compatible, and records the network in PeerNetworks.
package podnetwork

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/gateways"
)

// Settings are the user's settings of the network.
type Settings struct {
	// Mode determines whether the pods of the clusters can reach each other. If it is "", the mode of the existing
	// peering is used, or else the mode of the consumer's installation.
	Mode plugins.NetworkMode
	// ConsumerRanges and ProviderRanges are the pod ranges of the clusters. By default, they are the pod ranges of the
	// nodes. If ProviderRanges is set, pod addresses outside of these ranges are not reflected.
	ConsumerRanges, ProviderRanges []netip.Prefix
	// OverlappingRanges disables the check that pod ranges do not overlap. It is for networks that translate addresses
	// between the clusters. If it is nil, the setting of the existing peering is used, or else false.
	OverlappingRanges *bool
}

// AreSet reports whether the user has set any of the settings.
func (s Settings) AreSet() bool {
	return s.Mode != "" || s.OverlappingRanges != nil || len(s.ConsumerRanges)+len(s.ProviderRanges) > 0
}

// declaredLocal and declaredRemote are the values that the list in wire.DeclaredRangesAnnotation may contain.
const declaredLocal, declaredRemote = "local", "remote"

// Keep completes the settings with the settings in the PeerNetwork of an existing peering. isJoined reports whether
// there is such a PeerNetwork.
func (s Settings) Keep(ctx context.Context, consumer, provider *cluster.Side) (kept Settings, isJoined bool, err error) {
	declared := &plugins.PeerNetwork{}
	key := client.ObjectKey{Namespace: wire.TenantNamespace(provider.ID()), Name: provider.ID()}
	err = consumer.Client.Get(ctx, key, declared)
	if apimeta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return s, false, nil
	}
	if err != nil {
		return s, false, fmt.Errorf("cluster %s: getting PeerNetwork %s, %w", consumer.Name, key, err)
	}
	if s.Mode == "" {
		s.Mode = declared.Spec.Mode
	}
	if s.OverlappingRanges == nil {
		s.OverlappingRanges = ptr.To(declared.Annotations[wire.OverlappingRangesAnnotation] == "true")
	}
	set := strings.Split(declared.Annotations[wire.DeclaredRangesAnnotation], ",")
	if len(s.ConsumerRanges) == 0 && slices.Contains(set, declaredLocal) {
		s.ConsumerRanges = parseRanges(declared.Spec.Local.PodCIDRs)
	}
	if len(s.ProviderRanges) == 0 && slices.Contains(set, declaredRemote) {
		s.ProviderRanges = parseRanges(declared.Spec.Remote.PodCIDRs)
	}
	return s, true, nil
}

// parseRanges parses ranges that were validated by the API server.
func parseRanges(cidrs []plugins.CIDR) (ranges []netip.Prefix) {
	for _, cidr := range cidrs {
		if prefix, err := netip.ParsePrefix(string(cidr)); err == nil {
			ranges = append(ranges, prefix)
		}
	}
	return ranges
}

// declaredSides returns the value of wire.DeclaredRangesAnnotation: the clusters for which the user has set ranges.
func (s Settings) declaredSides() string {
	var set []string
	if len(s.ConsumerRanges) > 0 {
		set = append(set, declaredLocal)
	}
	if len(s.ProviderRanges) > 0 {
		set = append(set, declaredRemote)
	}
	return strings.Join(set, ",")
}

// Ranges contains the known address ranges of a cluster.
type Ranges struct{ Pods, Services []netip.Prefix }

// Network describes the network that connects the pods of two clusters.
type Network struct {
	Settings
	Consumer, Provider             *cluster.Side
	ConsumerRanges, ProviderRanges Ranges
}

// Learn determines the address ranges of the clusters and the network between them. If the mode is not set, the mode of
// the consumer's installation is used; it stays empty if the consumer cannot be accessed. No ranges are read from a
// cluster that cannot be accessed.
func Learn(ctx context.Context, consumer, provider *cluster.Side, settings Settings) (*Network, error) {
	n := &Network{Settings: settings, Consumer: consumer, Provider: provider}
	var err error
	if n.ConsumerRanges, err = readRanges(ctx, consumer, settings.ConsumerRanges); err != nil {
		return nil, err
	}
	if n.ProviderRanges, err = readRanges(ctx, provider, settings.ProviderRanges); err != nil {
		return nil, err
	}
	if n.Mode != "" || consumer.IsAbsent() {
		return n, nil
	}
	n.Mode, err = defaultMode(ctx, consumer, provider)
	return n, err
}

// readRanges returns the ranges of a cluster. pods contains the pod ranges that the user has set. If it is empty, the
// pod ranges are read from the cluster.
func readRanges(ctx context.Context, side *cluster.Side, pods []netip.Prefix) (ranges Ranges, err error) {
	ranges.Pods = pods
	if side.IsAbsent() {
		return ranges, nil
	}
	if len(pods) == 0 {
		if ranges.Pods, err = side.PodRanges(ctx); err != nil {
			return ranges, err
		}
	}
	ranges.Services, err = side.ServiceRanges(ctx)
	return ranges, err
}

// defaultMode returns the mode according to the installations: no network if the consumer's virtual kubelets do not reflect pod
// addresses or if it uses Liqo's network, gateways if they are enabled in both clusters, and a reachable network otherwise.
func defaultMode(ctx context.Context, consumer, provider *cluster.Side) (plugins.NetworkMode, error) {
	templates := &offloading.VkOptionsTemplateList{}
	if err := consumer.Client.List(ctx, templates, client.InNamespace(consumer.Installation.Namespace)); err != nil {
		return "", fmt.Errorf("cluster %s: listing VkOptionsTemplates, %w", consumer.Name, err)
	}
	for i := range templates.Items {
		if slices.Contains(templates.Items[i].Spec.ExtraArgs, "--disable-ip-reflection") {
			return plugins.NoNetwork, nil
		}
	}
	connects, err := gateways.RunsOwn(ctx, consumer)
	if err == nil && connects {
		connects, err = gateways.AreEnabled(ctx, provider)
	}
	switch {
	case err != nil:
		return "", err
	case connects:
		return plugins.GatewayNetwork, nil
	}
	liqo := &unstructured.UnstructuredList{}
	liqo.SetGroupVersionKind(schema.GroupVersionKind{Group: "networking.liqo.io", Version: "v1beta1", Kind: "ConfigurationList"})
	err = consumer.Client.List(ctx, liqo, client.Limit(1))
	switch {
	case err != nil && !apimeta.IsNoMatchError(err):
		return "", fmt.Errorf("cluster %s: listing the Configurations of Liqo's network, %w", consumer.Name, err)
	case len(liqo.Items) > 0:
		return plugins.NoNetwork, nil
	}
	return plugins.ReachableNetwork, nil
}

// Declare creates a PeerNetwork in the cluster of writer, which describes the network to the peer. A PeerNetwork of a
// gateway is left unchanged. If the mode is empty, no PeerNetwork is created, because the mode becomes known only when
// the consumer is joined.
func (n *Network) Declare(ctx context.Context, writer *cluster.Writer, report progress.Reporter) error {
	if n.Mode == "" {
		return nil
	}
	isConsumer := writer.Side == n.Consumer
	peer, local, remote := n.Provider, n.ConsumerRanges, n.ProviderRanges
	if !isConsumer {
		peer, local, remote = n.Consumer, n.ProviderRanges, n.ConsumerRanges
	}
	network := &plugins.PeerNetwork{ObjectMeta: cluster.Meta(wire.TenantNamespace(peer.ID()), peer.ID(), map[string]string{wire.RemoteClusterIDLabel: peer.ID()}),
		Spec: plugins.PeerNetworkSpec{ClusterID: peer.ID(), Mode: n.Mode, Local: describeSide(local), Remote: describeSide(remote)}}
	if isConsumer {
		network.Annotations = map[string]string{}
		if ptr.Deref(n.OverlappingRanges, false) {
			network.Annotations[wire.OverlappingRangesAnnotation] = "true"
		}
		if set := n.declaredSides(); set != "" {
			network.Annotations[wire.DeclaredRangesAnnotation] = set
		}
	}
	err := writer.Apply(ctx, network)
	if apimeta.IsNoMatchError(err) {
		report.Report("%s: the CRD PeerNetwork is missing, the network is not recorded: upgrade this cluster with refractctl install", writer.ID())
		return nil
	}
	return err
}

// describeSide describes the ranges of a cluster. The ranges are in canonical form, sorted and without duplicates.
func describeSide(ranges Ranges) (side plugins.NetworkSide) {
	set := map[netip.Prefix]bool{}
	for _, prefix := range ranges.Pods {
		set[prefix.Masked()] = true
	}
	for _, prefix := range slices.SortedFunc(maps.Keys(set), netip.Prefix.Compare) {
		side.PodCIDRs = append(side.PodCIDRs, plugins.CIDR(prefix.String()))
	}
	return side
}

// HasGateways reports whether gateways connect a cluster with the provider of a virtual node. It returns false if the virtual node does
// not exist.
func HasGateways(ctx context.Context, c client.Client, virtualNode string) (bool, error) {
	networks, nodes := &plugins.PeerNetworkList{}, &offloading.VirtualNodeList{}
	if err := c.List(ctx, networks); apimeta.IsNoMatchError(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("listing PeerNetworks, %w", err)
	}
	if err := c.List(ctx, nodes); err != nil {
		return false, fmt.Errorf("listing VirtualNodes, %w", err)
	}
	return slices.ContainsFunc(nodes.Items, func(vn offloading.VirtualNode) bool {
		return vn.Name == virtualNode && slices.ContainsFunc(networks.Items, func(n plugins.PeerNetwork) bool {
			return n.Spec.ClusterID == string(vn.Spec.ClusterID) && n.Spec.Mode == plugins.GatewayNetwork
		})
	}), nil
}
