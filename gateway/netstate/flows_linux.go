// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package netstate

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// tcpSynSent is the state of a TCP connection whose first packet was not answered.
const tcpSynSent = 1

// deleteStaleFlows deletes the connections that the kernel continues as it has begun them, although Services have changed
// since. The kernel translates only the first packet of a connection. UDP has no connections, so clients would send to a
// removed endpoint for ever, or to an address that was not translated when the pod was new. TCP connections remain until
// they end, as with kube-proxy, except those that nobody has answered.
func (k *linuxKernel) deleteStaleFlows(s *Services) error {
	if s == nil || !k.flowsPending || len(s.Pods) == 0 {
		k.flowsPending, k.removedPorts = false, nil
		return nil
	}
	_, err := k.routes.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, staleFlows{s, k.removedPorts})
	if err != nil {
		return fmt.Errorf("deleting connections to earlier endpoints, %w", err)
	}
	k.flowsPending, k.removedPorts = false, nil
	return nil
}

// staleFlows matches stale connections.
type staleFlows struct {
	*Services
	// removed contains the keys of ports that no longer exist.
	removed map[string]bool
}

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (s staleFlows) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	owner, ok := s.Pods[addrOf(flow.Forward.SrcIP)]
	if !ok || !isReplaceable(flow) {
		return false
	}
	port := ServicePort{Owner: owner, Address: addrOf(flow.Forward.DstIP), Protocol: flow.Forward.Protocol, Port: flow.Forward.DstPort}
	server := netip.AddrPortFrom(addrOf(flow.Reverse.SrcIP), flow.Reverse.SrcPort)
	if backends, ok := s.Ports[port]; ok {
		return !slices.Contains(backends.Endpoints, server)
	}
	isTranslated := !net.IP.Equal(flow.Reverse.SrcIP, flow.Forward.DstIP)
	return isTranslated && port.Address.Is4() && s.removed[port.key()]
}

// isReplaceable reports whether the client repeats its packets when the connection is deleted.
func isReplaceable(flow *netlink.ConntrackFlow) bool {
	switch flow.Forward.Protocol {
	case UDP:
		return true
	case TCP:
		state, ok := flow.ProtoInfo.(*netlink.ProtoInfoTCP)
		return ok && state.State == tcpSynSent
	}
	return false
}
