// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// Tolerance determines whether an overlap is only a warning. Clusters that are already joined must not lose their
// credentials because a later version checks more.
type Tolerance struct {
	// IsJoined is true if the clusters are already joined. IsUnchanged is true if they are joined and no flag changes
	// their network.
	IsJoined, IsUnchanged bool
}

// CheckRanges returns an error if pod ranges of a cluster overlap pod ranges or cluster IPs of the other cluster, or
// pod ranges of another peer, because such an address is ambiguous. There is no check if pods need not reach each
// other, or if gateways or a network such as Liqo's translate addresses. If ranges are unknown, CheckRanges reports a warning.
func (n *Network) CheckRanges(ctx context.Context, tolerance Tolerance, report progress.Reporter) error {
	if ptr.Deref(n.OverlappingRanges, false) || n.Mode == plugins.NoNetwork || n.Mode == plugins.GatewayNetwork {
		return nil
	}
	here, there := n.ConsumerRanges.Pods, n.ProviderRanges.Pods
	for _, side := range []struct {
		of    *cluster.Side
		flag  string
		known bool
	}{{n.Consumer, "--pod-cidrs", len(here) > 0}, {n.Provider, "--remote-pod-cidrs", len(there) > 0}} {
		if !side.known {
			report.Report("%s: warning: the pod ranges are unknown, the nodes have no spec.podCIDRs: whether they overlap with those of the other cluster is not checked, set them with %s", side.of.ID(), side.flag)
		}
	}
	for _, one := range here {
		if at := slices.IndexFunc(there, one.Overlaps); at >= 0 {
			err := fmt.Errorf("the pod ranges overlap, %s of %s and %s of %s: pods cannot reach each other by address. Join them with --network=none, "+
				"or set --overlapping-ranges if a network between the clusters translates addresses", one, n.Consumer.Name, there[at], n.Provider.Name)
			return n.tolerate(err, tolerance, report)
		}
	}
	return errors.Join(n.tolerate(n.checkServices(), tolerance, report), n.checkOtherPeers(ctx, tolerance, report))
}

// tolerate either returns err, so that the clusters are not joined, or reports it as a warning and returns nil.
func (n *Network) tolerate(err error, tolerance Tolerance, report progress.Reporter) error {
	if err == nil || !tolerance.IsUnchanged {
		return err
	}
	report.Report("%s: warning: %v", n.Consumer.ID(), err)
	return nil
}

// checkServices returns an error if pod ranges of one cluster overlap cluster IPs of the other cluster: kube-proxy
// would redirect packets for such a pod to a Service. The cluster IPs of the two clusters may overlap, because they are
// used only within a cluster.
func (n *Network) checkServices() error {
	for _, side := range []struct {
		pods, services         *cluster.Side
		podRanges, allServices []netip.Prefix
	}{
		{n.Consumer, n.Provider, n.ConsumerRanges.Pods, n.ProviderRanges.Services},
		{n.Provider, n.Consumer, n.ProviderRanges.Pods, n.ConsumerRanges.Services},
	} {
		for _, one := range side.podRanges {
			if at := slices.IndexFunc(side.allServices, one.Overlaps); at >= 0 {
				return fmt.Errorf("the pod range %s of %s overlaps with the Service range %s of %s: pods there cannot reach pods with these addresses. Join them with --network=none, "+
					"or set --overlapping-ranges if a network between the clusters translates addresses", one, side.pods.Name, side.allServices[at], side.services.Name)
			}
		}
	}
	return nil
}

// checkOtherPeers returns an error if pod ranges of the provider overlap pod ranges of another peer, because the
// consumer could reach only one of the peers. Clusters that are already joined stay joined.
func (n *Network) checkOtherPeers(ctx context.Context, tolerance Tolerance, report progress.Reporter) error {
	if n.Consumer.IsAbsent() {
		return nil // the consumer cannot be accessed, so its other peers are unknown
	}
	others := &plugins.PeerNetworkList{}
	err := n.Consumer.Client.List(ctx, others)
	if apimeta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cluster %s: listing PeerNetworks, %w", n.Consumer.Name, err)
	}
	for i := range others.Items {
		other := &others.Items[i].Spec
		if other.ClusterID == n.Provider.ID() || other.Mode != plugins.ReachableNetwork {
			continue
		}
		for _, theirs := range parseRanges(other.Remote.PodCIDRs) {
			at := slices.IndexFunc(n.ProviderRanges.Pods, theirs.Overlaps)
			switch {
			case at >= 0 && tolerance.IsJoined:
				report.Report("%s: warning: the pod range %s of %s overlaps with %s of its peer %s, so pods reach only one of them at such an address", n.Consumer.ID(), n.ProviderRanges.Pods[at], n.Provider.ID(), theirs, other.ClusterID)
			case at >= 0:
				return fmt.Errorf("the pod range %s of %s overlaps with %s of its peer %s: pods of %s reach only one of them at such an address. Join them with --network=none, "+
					"or set --overlapping-ranges if a network between the clusters translates addresses", n.ProviderRanges.Pods[at], n.Provider.Name, theirs, other.ClusterID, n.Consumer.Name)
			}
		}
	}
	return nil
}
