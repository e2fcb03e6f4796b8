// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	ipamv1alpha1 "github.com/refract-project/refract/api/ipam/v1alpha1"
	api "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/ipam"
)

// use is the purpose of a peer's range. Its text is the value of a label of the Network.
type use string

const (
	podUse      use = "pod"
	externalUse use = "external"
)

// remoteRange is a range of the peer.
type remoteRange struct {
	use    use
	cidr   api.CIDR
	prefix netip.Prefix
}

// parseRemote returns the ranges of the peer in the order of the spec: pod ranges, then external ranges. It returns an
// error for ranges that a peer must not have.
func parseRemote(remote api.ClusterConfigCIDR) (found []remoteRange, err error) {
	var texts []string
	for _, cidr := range slices.Concat(remote.Pod, remote.External) {
		texts = append(texts, string(cidr))
	}
	parsed, err := ipam.ParsePeerRanges(texts)
	if err != nil {
		return nil, fmt.Errorf("spec.remote.cidr: %w", err)
	}
	for i, r := range parsed {
		of := podUse
		if i >= len(remote.Pod) {
			of = externalUse
		}
		found = append(found, remoteRange{of, api.CIDR(texts[i]), r})
	}
	return found, nil
}

// networkName returns the name of the Network for the range. It is the same as in Liqo 1.2.
func (r remoteRange) networkName(configuration string) string {
	return configuration + "-" + string(r.use) + "-" + strings.NewReplacer(".", "-", "/", "-").Replace(string(r.cidr))
}

// isOf reports whether a Network requests the range. The name of the Network does not matter.
func (r remoteRange) isOf(n *ipamv1alpha1.Network) bool {
	wish, err := netip.ParsePrefix(string(n.Spec.CIDR))
	return err == nil && wish.Masked() == r.prefix && n.Labels[wire.CIDRTypeLabel] == string(r.use)
}

// localRanges contains the ranges of this cluster, according to its Networks.
type localRanges struct{ pod, external []api.CIDR }

// findLocal returns the granted ranges of this cluster. If a Network is missing or has no range, the error names it.
func findLocal(networks []ipamv1alpha1.Network) (local localRanges, err error) {
	for i := range networks {
		n := &networks[i]
		label := n.Labels[wire.NetworkTypeLabel]
		if label != wire.PodNetwork && label != wire.ExternalNetwork || n.DeletionTimestamp != nil {
			continue
		}
		if n.Status.CIDR == "" {
			return local, fmt.Errorf(
				"the Network %s/%s of this cluster has no range yet: its condition has the reason",
				n.Namespace,
				n.Name,
			)
		}
		if label == wire.PodNetwork {
			local.pod = append(local.pod, n.Status.CIDR)
		} else {
			local.external = append(local.external, n.Status.CIDR)
		}
	}
	for _, missing := range []struct {
		label  string
		ranges []api.CIDR
	}{{wire.PodNetwork, local.pod}, {wire.ExternalNetwork, local.external}} {
		if len(missing.ranges) == 0 {
			return local, fmt.Errorf(
				"no Network has the label %s=%s: create it, with the range of this cluster",
				wire.NetworkTypeLabel,
				missing.label,
			)
		}
	}
	slices.Sort(local.pod)
	slices.Sort(local.external)
	return local, nil
}

// check returns an error if a range does not belong to this cluster, because the gateway would let the peer send
// packets to it.
func (l localRanges) check(local api.ClusterConfigCIDR) error {
	for _, list := range []struct {
		field        string
		given, owned []api.CIDR
	}{{"pod", local.Pod, l.pod}, {"external", local.External, l.external}} {
		for _, cidr := range list.given {
			if !isWithin(cidr, list.owned) {
				return fmt.Errorf(
					"spec.local.cidr.%s: %s is not within the ranges of this cluster (%q): remove spec.local, which is then set",
					list.field,
					cidr,
					list.owned,
				)
			}
		}
	}
	return nil
}

// isWithin reports whether one of the other ranges contains the range.
func isWithin(cidr api.CIDR, others []api.CIDR) bool {
	r, err := netip.ParsePrefix(string(cidr))
	return err == nil && slices.ContainsFunc(others, func(other api.CIDR) bool {
		outer, err := netip.ParsePrefix(string(other))
		return err == nil && outer.Bits() <= r.Bits() && outer.Contains(r.Addr())
	})
}
