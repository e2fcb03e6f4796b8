// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package netstate

import (
	"fmt"
	"net/netip"
	"strings"
)

// Protocol marks Refract's routes and policy rules in the kernel. The number is not used by any of the routing daemons
// that iproute2 lists.
const Protocol = 114

// Scope describes which objects in the kernel belong to a process.
type Scope struct {
	// Links are the names of links. A link with a VXLAN in the State is also created and deleted.
	Links []string
	// RouteTables are routing tables. All routes in them belong to the process, as do all policy rules for them that
	// are marked with Protocol.
	RouteTables []int
	// Table is the name of an nftables table of the family ip.
	Table string
	// LocalRule is true if the policy rule of the kernel's table "local" belongs to the process. It must be false in the
	// network namespace of a node.
	LocalRule bool
}

// State is a desired network configuration. The order in its lists does not matter, except for the rules in a chain.
type State struct {
	Links      []Link
	Neighbours []Neighbour
	Forwards   []Forward
	Routes     []Route
	Rules      []PolicyRule
	// LocalPriority is the priority of the policy rule of the kernel's table "local". Rules before it also apply to
	// packets whose destination is an address of this host. The kernel's default is 0.
	LocalPriority int
	Table         Table
}

// Link is a network interface that is up. It forwards the packets that arrive on it without a check of their source
// (forwarding on, rp_filter off), because the addresses of a peer may also be addresses of this cluster.
type Link struct {
	Name string
	MTU  int
	// VXLAN is nil if another part of the process creates the link.
	VXLAN *VXLAN
	// AcceptLocal accepts packets whose source is an address of this host.
	AcceptLocal bool
	// Addresses are the addresses of the link. A VXLAN device needs none, because its routes have the flag onlink.
	Addresses []netip.Prefix
}

// VXLAN contains the parameters of a VXLAN device without address learning. They cannot be changed after the device was
// created.
type VXLAN struct {
	ID, Port int
	MAC      string
}

// Neighbour is a permanent entry in the neighbour table. It maps a next hop to its MAC.
type Neighbour struct {
	Link string
	IP   netip.Addr
	MAC  string
}

// Forward is an entry in the forwarding database of a VXLAN device. It maps a MAC to its host.
type Forward struct {
	Link string
	MAC  string
	Host netip.Addr
}

// Route is a route in one of the tables of the Scope.
type Route struct {
	Table       int
	Destination netip.Prefix
	// Link is empty for a route that rejects packets (unreachable).
	Link string
	// Via is the next hop. It need not be in a range of the link. If it is invalid, the destination itself is the next hop.
	Via netip.Addr
	// MTU is the MTU of the path. If it is 0, the MTU of the link is used.
	MTU int
	// TOS is the type of service that packets must have. If it is 0, the route applies to all packets. A table has one route to a
	// destination, whatever its TOS.
	TOS int
}

// PolicyRule selects a routing table for the packets that arrive on a link, or for all packets.
type PolicyRule struct {
	Priority int
	// In is the name of the link. If it is empty, the rule applies to all packets.
	In string
	// Mark is a mark that packets must have. If it is 0, the rule applies to all packets.
	Mark  uint32
	Table int
}

// Table is an nftables table.
type Table struct {
	Name   string
	Sets   []Set
	Maps   []AddressMap
	Chains []Chain
	// Services adds maps and chains that translate the addresses of Services. It is nil if no address is translated.
	Services *Services
}

// Set is a named set of address ranges.
type Set struct {
	Name   string
	Ranges []netip.Prefix
}

// AddressMap is a named map from addresses to addresses.
type AddressMap struct {
	Name    string
	Entries map[netip.Addr]netip.Addr
}

// Chain is a base chain. Its policy is to accept packets, unless Drop is set.
type Chain struct {
	Name     string
	Type     ChainType
	Hook     Hook
	Priority int
	Drop     bool
	Rules    []Rule
}

// ChainType is the type of a chain.
type ChainType string

// The types of chains.
const (
	Filter ChainType = "filter"
	NAT    ChainType = "nat"
)

// Hook is the place where a chain processes a packet.
type Hook string

// The hooks, in the order a forwarded, received or sent packet passes them.
const (
	Prerouting  Hook = "prerouting"
	Input       Hook = "input"
	Forwarding  Hook = "forward"
	Output      Hook = "output"
	Postrouting Hook = "postrouting"
)

// Rule applies an action to the packets that match all fields that are set.
type Rule struct {
	In, Out string // names of links
	// Source and Destination match ranges. SourceSet and DestinationSet match named sets of the table.
	Source, Destination       netip.Prefix
	SourceSet, DestinationSet string
	// NotSourceSet inverts SourceSet. NotDestinationSet inverts DestinationSet.
	NotSourceSet, NotDestinationSet bool
	// DestinationTranslated matches connections whose destination was translated, for example by kube-proxy.
	DestinationTranslated bool
	// ToHost matches packets whose destination is an address of this host.
	ToHost bool
	// Answer matches packets in the direction opposite to the first packet of their connection.
	Answer bool
	// Protocol is an IP protocol. Port is the destination port.
	Protocol uint8
	Port     uint16
	// Opening matches TCP segments that open a connection: SYN and SYN-ACK.
	Opening bool
	// Count counts packets and bytes.
	Count  bool
	Action Action
	// Comment describes the purpose of the rule. The kernel stores it with the rule.
	Comment string
}

// Action is the action of a rule. Exactly one field is set.
type Action struct {
	Accept, Drop, NoTrack bool
	// TranslateSource and TranslateDestination replace an address with an address in the given range, with the same
	// host bits.
	TranslateSource, TranslateDestination netip.Prefix
	// MapDestination replaces the destination with its value in a named map of the table. If the map does not contain the
	// destination, the packet is not changed.
	MapDestination string
	// Masquerade replaces the source address with the address of the link that the packet leaves through.
	Masquerade bool
	// KeepSource keeps the source address, and prevents later chains, such as those of kube-proxy and the network
	// plugin, from replacing it.
	KeepSource bool
	// Mark sets the mark of the packet, for a PolicyRule.
	Mark uint32
	// MaxSegment limits the maximum segment size that a TCP segment announces, in bytes.
	MaxSegment uint16
}

// IP protocols.
const (
	ICMP uint8 = 1
	TCP  uint8 = 6
	UDP  uint8 = 17
	SCTP uint8 = 132
)

// String returns the rule in the syntax of nft.
func (r Rule) String() string {
	var parts []string
	add := func(set bool, format string, values ...any) {
		if set {
			parts = append(parts, fmt.Sprintf(format, values...))
		}
	}
	add(r.In != "", "iifname %q", r.In)
	add(r.Out != "", "oifname %q", r.Out)
	add(r.Source.IsValid(), "ip saddr %s", r.Source)
	add(r.SourceSet != "" && !r.NotSourceSet, "ip saddr @%s", r.SourceSet)
	add(r.SourceSet != "" && r.NotSourceSet, "ip saddr != @%s", r.SourceSet)
	add(r.Destination.IsValid(), "ip daddr %s", r.Destination)
	add(r.DestinationSet != "" && !r.NotDestinationSet, "ip daddr @%s", r.DestinationSet)
	add(r.DestinationSet != "" && r.NotDestinationSet, "ip daddr != @%s", r.DestinationSet)
	add(r.DestinationTranslated, "ct status dnat")
	add(r.ToHost, "fib daddr type local")
	add(r.Answer, "ct direction reply")
	add(r.Protocol != 0 && r.Port == 0 && !r.Opening, "meta l4proto %d", r.Protocol)
	add(r.Port != 0, "meta l4proto %d th dport %d", r.Protocol, r.Port)
	add(r.Opening, "tcp flags & (syn | rst) == syn")
	add(r.Count, "counter")
	add(r.Action.Accept, "accept")
	add(r.Action.Drop, "drop")
	add(r.Action.NoTrack, "notrack")
	add(r.Action.TranslateSource.IsValid(), "snat prefix to %s", r.Action.TranslateSource)
	add(r.Action.TranslateDestination.IsValid(), "dnat prefix to %s", r.Action.TranslateDestination)
	add(r.Action.MapDestination != "", "dnat to ip daddr map @%s", r.Action.MapDestination)
	add(r.Action.Masquerade, "masquerade")
	add(r.Action.KeepSource, "snat to ip saddr")
	add(r.Action.Mark != 0, "meta mark set %d", r.Action.Mark)
	add(r.Action.MaxSegment != 0, "tcp option maxseg size set %d", r.Action.MaxSegment)
	add(r.Comment != "", "comment %q", r.Comment)
	return strings.Join(parts, " ")
}
