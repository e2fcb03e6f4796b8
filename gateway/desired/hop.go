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
)

const (
	// VXLANLink is the device between nodes and gateways. There is one on each node and one in each gateway.
	VXLANLink = "refract.vx"
	// VXLANPort is the UDP port of the device.
	VXLANPort = 6092
	// TableName is the name of the nftables table.
	TableName = "refract"

	vxlanID = 1
	// vxlanOverhead is the length of the headers that VXLAN adds: Ethernet, VXLAN, UDP and IPv4.
	vxlanOverhead = 50
	// rulePriority is before the rules of network plugins (the one of AWS begins at 512) and behind the kernel's own table "local".
	rulePriority = 100
)

var allAddresses = netip.MustParsePrefix("0.0.0.0/0")

// hop is another end of the VXLAN device.
type hop struct {
	next netip.Addr // see nextHops
	mac  string
	host netip.Addr
}

// addHop adds the way to another end, for packets to the targets.
func addHop(state *netstate.State, h hop, table int, targets []netip.Prefix, mtu int) {
	state.Neighbours = append(state.Neighbours, netstate.Neighbour{Link: VXLANLink, IP: h.next, MAC: h.mac})
	state.Forwards = append(state.Forwards, netstate.Forward{Link: VXLANLink, MAC: h.mac, Host: h.host})
	for _, t := range targets {
		state.Routes = append(state.Routes, netstate.Route{Table: table, Destination: t, Link: VXLANLink, Via: h.next, MTU: mtu})
	}
}

func vxlan(mtu int, mac string) netstate.Link {
	return netstate.Link{Name: VXLANLink, MTU: mtu - vxlanOverhead, VXLAN: &netstate.VXLAN{ID: vxlanID, Port: VXLANPort, MAC: mac}}
}

// nextHops returns an address for each name, in 240.0.0.0/4. It stands for a MAC in this host's routes and never is in a packet, so
// other hosts need not know it. The address is a hash of the name: it is the same after a restart, and does not depend on
// the other names unless two have the same hash, which takes some ten thousand names.
func nextHops(names []string) map[string]netip.Addr {
	names = slices.Sorted(slices.Values(names))
	hops, used := map[string]netip.Addr{}, map[netip.Addr]bool{}
	for _, name := range names {
		hash := sha256.Sum256([]byte(name))
		for number := binary.BigEndian.Uint32(hash[:]); ; number++ {
			// The last address of the range is the broadcast address.
			a := netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 0xf0000000|number%0x0fffffff)))
			if !used[a] {
				hops[name], used[a] = a, true
				break
			}
		}
	}
	return hops
}

// gatewayMAC returns the MAC of a gateway. All its pods have the same, so that only the host behind it changes when another
// pod takes over.
func gatewayMAC(uid types.UID) string { return hashMAC("gateway " + string(uid)) }

func nodeMAC(name string) string { return hashMAC("node " + name) }

// hashMAC returns a MAC that is marked as locally administered.
func hashMAC(text string) string {
	hash := sha256.Sum256([]byte(text))
	mac := net.HardwareAddr(hash[:6])
	mac[0] = mac[0]&^1 | 2
	return mac.String()
}
