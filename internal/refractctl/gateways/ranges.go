// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package gateways

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipam "github.com/refract-project/refract/api/ipam/v1alpha1"
	api "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// defaultExternalRange is the range from which a cluster gives addresses to hosts that are not pods, as in Liqo.
const defaultExternalRange = "10.70.0.0/16"

// declared are the Networks with the ranges of a cluster.
type declared struct{ pods, external []ipam.Network }

// findDeclared reads the Networks with the ranges of the cluster. It returns an error if the user has set other pod ranges.
func (e *end) findDeclared(ctx context.Context) (d declared, err error) {
	all := &ipam.NetworkList{}
	if err := e.Client.List(ctx, all, client.HasLabels{wire.NetworkTypeLabel}); err != nil {
		return d, fmt.Errorf("cluster %s: listing Networks, %w", e.Name, err)
	}
	for i := range all.Items {
		switch all.Items[i].Labels[wire.NetworkTypeLabel] {
		case wire.PodNetwork:
			d.pods = append(d.pods, all.Items[i])
		case wire.ExternalNetwork:
			d.external = append(d.external, all.Items[i])
		}
	}
	if len(e.podRanges) == 0 || len(d.pods) == 0 {
		return d, nil
	}
	var texts []string
	for i := range d.pods {
		texts = append(texts, string(d.pods[i].Spec.CIDR))
	}
	for _, given := range e.podRanges {
		if !slices.Contains(texts, given.Masked().String()) {
			return d, fmt.Errorf("cluster %s: the pod range %s is not declared, its Networks declare %s: create a Network with the label %s=%s, or omit the flag",
				e.Name, given, strings.Join(texts, ", "), wire.NetworkTypeLabel, wire.PodNetwork)
		}
	}
	return d, nil
}

// declareRanges creates the Networks with the ranges of the cluster, unless they exist. Liqo creates them itself.
func (l *Link) declareRanges(ctx context.Context, e *end, writer *cluster.Writer) error {
	found, err := e.findDeclared(ctx)
	if err != nil || e.RunsLiqo {
		return err
	}
	if len(found.pods) == 0 {
		ranges, err := l.findPodRanges(ctx, e)
		if err != nil {
			return err
		}
		for i, pods := range ranges {
			name := wire.PodNetwork
			if i > 0 {
				name = fmt.Sprintf("%s-%d", wire.PodNetwork, i+1)
			}
			l.Report("%s: declaring the pod range %s", e.ID(), pods)
			labels := map[string]string{wire.NetworkTypeLabel: wire.PodNetwork, wire.NetworkNotRemappedLabel: "true"}
			if err := writer.Apply(ctx, e.forgeNetwork(name, pods.String(), labels)); err != nil {
				return err
			}
		}
	}
	if len(found.external) > 0 {
		return nil
	}
	external := e.forgeNetwork(wire.ExternalNetwork, defaultExternalRange, map[string]string{wire.NetworkTypeLabel: wire.ExternalNetwork})
	external.Spec.PreAllocated = 1 // the first address stands for sources that have no other address
	return writer.Apply(ctx, external)
}

func (e *end) forgeNetwork(name, cidr string, labels map[string]string) *ipam.Network {
	return &ipam.Network{ObjectMeta: cluster.Meta(e.Installation.Namespace, name, labels), Spec: ipam.NetworkSpec{CIDR: api.CIDR(cidr)}}
}

// findPodRanges returns the pod ranges of a cluster that has not declared them: those that the user has set, the range from which
// the controller manager of Kubernetes gives ranges to nodes, or the ranges of the nodes.
func (l *Link) findPodRanges(ctx context.Context, e *end) ([]netip.Prefix, error) {
	ranges := e.podRanges
	if len(ranges) == 0 {
		var err error
		if ranges, err = e.ClusterPodRanges(ctx); err != nil {
			return nil, err
		}
	}
	if len(ranges) == 0 {
		if ranges, err := e.PodRanges(ctx); err != nil || len(ranges) > 0 {
			l.Report("%s: warning: only the pod ranges of the present nodes are known, so that pods on nodes that are added later may not be reached: set the range of the whole cluster with %s",
				e.ID(), l.rangesFlag(e))
			return mergeRanges(ranges), err
		}
		return nil, fmt.Errorf("cluster %s: its pod ranges are unknown, because its nodes have no spec.podCIDRs: set %s", e.Name, l.rangesFlag(e))
	}
	return mergeRanges(ranges), nil
}

// rangesFlag returns the flag for the pod ranges of a cluster.
func (l *Link) rangesFlag(e *end) string {
	if e == l.consumer {
		return "--pod-cidrs"
	}
	return "--remote-pod-cidrs"
}

// mergeRanges returns the IPv4 ranges, sorted, in as few prefixes as possible. Gateways do not carry IPv6.
func mergeRanges(ranges []netip.Prefix) []netip.Prefix {
	var builder netipx.IPSetBuilder
	for _, r := range ranges {
		if r.Addr().Is4() {
			builder.AddPrefix(r.Masked())
		}
	}
	set, err := builder.IPSet()
	if err != nil { // impossible with valid prefixes
		return ranges
	}
	return set.Prefixes()
}

// awaitRanges waits until the ranges of the cluster are granted, and returns them.
func (l *Link) awaitRanges(ctx context.Context, e *end) (ranges api.ClusterConfigCIDR, err error) {
	if e.IsInvited() {
		return *e.Invitation.Gateway.Ranges.DeepCopy(), nil
	}
	err = l.Await(ctx, "ranges of "+e.ID(), func(ctx context.Context) (string, error) {
		found, err := e.findDeclared(ctx)
		if err != nil {
			return "", err
		}
		ranges = api.ClusterConfigCIDR{}
		for use, networks := range map[*[]api.CIDR][]ipam.Network{&ranges.Pod: found.pods, &ranges.External: found.external} {
			if len(networks) == 0 {
				return "no Network declares them yet", nil
			}
			slices.SortFunc(networks, func(a, b ipam.Network) int { return strings.Compare(a.Name, b.Name) })
			for i := range networks {
				n := &networks[i]
				if n.Status.CIDR == "" {
					if refused := meta.FindStatusCondition(n.Status.Conditions, ipam.GrantedCondition); refused != nil {
						return fmt.Sprintf("Network %s: %s", n.Name, refused.Message), nil
					}
					return fmt.Sprintf("Network %s has no range yet: check that the controller manager runs", n.Name), nil
				}
				*use = append(*use, n.Status.CIDR)
			}
		}
		return "", nil
	})
	return ranges, err
}
