// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package desired

import (
	"net/netip"
	"slices"

	"github.com/refract-project/refract/gateway/netstate"
)

// Names of the nftables objects for Mappings. mappingsMap maps granted addresses to targets. targetsSet contains the
// targets.
const (
	mappingsMap = "ips"
	targetsSet  = "targets"
)

// Mapping is the content of an IP. A peer that sends to the address Granted, as it sees the external range of this
// cluster, reaches the address Target. The target may be a pod at another peer, a Service, or any host that the nodes
// reach.
type Mapping struct {
	Granted, Target netip.Addr
	// Masquerade is true if the target has no route to the peer. It then sees the address of a node.
	Masquerade bool
}

// IsTarget reports whether peers may be connected to an address: it is a unicast address, and neither a loopback nor a
// link-local address, which would be one of the gateway itself.
func IsTarget(a netip.Addr) bool {
	return a.Is4() && a.IsGlobalUnicast()
}

// selectMappings returns the targets of the granted addresses that are in the ranges of this cluster. Others cannot
// arrive from the peer.
func (r ranges) selectMappings(all []Mapping) map[netip.Addr]netip.Addr {
	selected := map[netip.Addr]netip.Addr{}
	for _, m := range all {
		isLocal := slices.ContainsFunc(r.local, func(p netip.Prefix) bool { return p.Contains(m.Granted) })
		if isLocal && IsTarget(m.Target) {
			selected[m.Granted] = m.Target
		}
	}
	return selected
}

func targetRanges(mappings map[netip.Addr]netip.Addr) (targets []netip.Prefix) {
	for _, target := range mappings {
		targets = append(targets, single(target))
	}
	slices.SortFunc(targets, netip.Prefix.Compare)
	return slices.Compact(targets)
}

// addTargets adds routes to the targets of Mappings. The node of this pod forwards the packets, as it would forward
// packets of its own pods. Pods of this cluster have routes to their nodes already.
func addTargets(state *netstate.State, mappings map[netip.Addr]netip.Addr, p Peering) {
	i := slices.IndexFunc(p.Nodes, func(n Node) bool { return n.Name == p.Node })
	if i < 0 {
		return
	}
	routed := map[netip.Prefix]bool{}
	var podRanges []netip.Prefix
	for _, route := range state.Routes {
		switch {
		case route.Table != tunnelTable || route.Link == "":
		case route.Destination.IsSingleIP(): // there may be one for each pod
			routed[route.Destination] = true
		default:
			podRanges = append(podRanges, route.Destination)
		}
	}
	via := nextHops(nodeNames(p.Nodes))[p.Node]
	for _, target := range targetRanges(mappings) {
		isInRange := func(r netip.Prefix) bool { return r.Contains(target.Addr()) }
		if !routed[target] && !slices.ContainsFunc(podRanges, isInRange) {
			state.Routes = append(state.Routes, netstate.Route{Table: tunnelTable, Destination: target, Link: VXLANLink, Via: via})
		}
	}
}
