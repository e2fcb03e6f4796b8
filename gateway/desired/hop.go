// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package desired

import (
	"crypto/sha256"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/gateway/netstate"
	"github.com/refract-project/refract/gateway/nodeleg"
)

const (
	// VXLANLink is the name of the VXLAN device between nodes and gateways. Each node and each gateway has one.
	VXLANLink = "refract.vx"
	// VXLANPort is the UDP port of the device.
	VXLANPort = 6092
	// TableName is the name of the nftables table.
	TableName = "refract"

	vxlanID = 1
	// vxlanOverhead is the length of the headers that VXLAN adds: Ethernet, VXLAN, UDP and IPv4.
	vxlanOverhead = 50
	// rulePriority is the priority of the routing rules. They come after the kernel's own table "local", and before the
	// rules of network plugins (for example, the AWS plugin's begin at 512).
	rulePriority = 100
)

var allAddresses = netip.MustParsePrefix("0.0.0.0/0")

// hop is another end of the VXLAN device: a gateway or a node.
type hop struct {
	next netip.Addr // next hop of the routes (see nextHops)
	mac  string
	host netip.Addr
}

// addHop adds routes for the targets that lead to another end of the VXLAN device.
func addHop(state *netstate.State, h hop, table int, targets []netip.Prefix, mtu int) {
	state.Neighbours = append(state.Neighbours, netstate.Neighbour{Link: VXLANLink, IP: h.next, MAC: h.mac})
	state.Forwards = append(state.Forwards, netstate.Forward{Link: VXLANLink, MAC: h.mac, Host: h.host})
	for _, t := range targets {
		state.Routes = append(state.Routes, netstate.Route{Table: table, Destination: t, Link: VXLANLink, Via: h.next, MTU: mtu})
	}
}

// addEcho adds the way of requests and answers from a node to a gateway.
func addEcho(state *netstate.State, gateway netip.Addr, mac string) {
	addEchoIn(peersTable, state, gateway, mac)
}

// addEchoIn adds the way of requests and answers to another end of the VXLAN device (package nodeleg). They are sent to
// the host's own address, but through the device, where the other routes do not lead. Without the route, a kernel with
// net.ipv4.conf.all.rp_filter=1 or 2 drops what arrives from the other end, because its way back is another link.
func addEchoIn(table int, state *netstate.State, host netip.Addr, mac string) {
	state.Neighbours = append(state.Neighbours, netstate.Neighbour{Link: VXLANLink, IP: host, MAC: mac})
	state.Routes = append(state.Routes,
		netstate.Route{Table: table, Destination: single(host), Link: VXLANLink, TOS: nodeleg.TypeOfService})
}

func vxlan(mtu int, mac string) netstate.Link {
	return netstate.Link{Name: VXLANLink, MTU: mtu - vxlanOverhead, VXLAN: &netstate.VXLAN{ID: vxlanID, Port: VXLANPort, MAC: mac}}
}

// nextHops returns an address in 240.0.0.0/4 for each name. The address represents a MAC in the routes of this host. It
// never occurs in packets, so other hosts need not know it. It is a hash of the name, so it is the same after a
// restart. It depends on the other names only if two names have the same hash, which is unlikely with less than ten
// thousand names.
func nextHops(names []string) map[string]netip.Addr {
	names = slices.Sorted(slices.Values(names))
	hops, used := map[string]netip.Addr{}, map[netip.Addr]bool{}
	for _, name := range names {
		hash := sha256.Sum256([]byte(name))
		for number := binary.BigEndian.Uint32(hash[:]); ; number++ {
			// The last address in the range is the broadcast address, so it is not used.
			a := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 0xf0000000|number%0x0fffffff)))
			if !used[a] {
				hops[name], used[a] = a, true
				break
			}
		}
	}
	return hops
}

// gatewayMAC returns the MAC of a gateway. All pods of a gateway have the same MAC, so when another pod takes over,
// only the host behind the MAC changes.
func gatewayMAC(uid types.UID) string { return hashMAC("gateway " + string(uid)) }

func nodeMAC(name string) string { return hashMAC("node " + name) }

// hashMAC returns a locally administered MAC that is a hash of text.
func hashMAC(text string) string {
	hash := sha256.Sum256([]byte(text))
	mac := net.HardwareAddr(hash[:6])
	mac[0] = mac[0]&^1 | 2
	return mac.String()
}
