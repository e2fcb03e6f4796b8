// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package netstate

import (
	"fmt"
	"net/netip"
	"strings"
)

// Protocol marks the routes and the policy rules of Refract in the kernel. Its number is not in use by the routing
// daemons that iproute2 lists.
const Protocol = 114

// Scope lists what belongs to a process.
type Scope struct {
	// Links are the names of the links. Those that are a VXLAN in the State are also created and deleted.
	Links []string
	// RouteTables are the routing tables. All routes in them belong to the process, and all policy rules with Protocol.
	RouteTables []int
	// Table is the name of the nftables table, of the family ip.
	Table string
}

// State is a desired network configuration. The order of its lists has no meaning, except for the rules of a chain.
type State struct {
	Links      []Link
	Neighbours []Neighbour
	Forwards   []Forward
	Routes     []Route
	Rules      []PolicyRule
	Table      Table
}

// Link is a network interface. It is up, and forwards packets that arrive on it without a check of their source
// (forwarding on, rp_filter off), since the addresses of a peer may be addresses of this cluster, too.
type Link struct {
	Name string
	MTU  int
	// VXLAN is nil for a link that another part of the process creates.
	VXLAN *VXLAN
	// Addresses of the link. A VXLAN device needs none: its routes have the flag onlink.
	Addresses []netip.Prefix
}

// VXLAN contains the parameters of a VXLAN device that learns no addresses. They cannot be changed while it exists.
type VXLAN struct {
	ID, Port int
	MAC      string
}

// Neighbour is a permanent entry of the neighbour table: the MAC of a next hop.
type Neighbour struct {
	Link string
	IP   netip.Addr
	MAC  string
}

// Forward is an entry of the forwarding database of a VXLAN device: the host that has a MAC.
type Forward struct {
	Link string
	MAC  string
	Host netip.Addr
}

// Route is a route in one of the tables of the Scope.
type Route struct {
	Table       int
	Destination netip.Prefix
	// Link is empty for a route that refuses packets (unreachable).
	Link string
	// Via is the next hop. It need not be in a range of the link.
	Via netip.Addr
	// MTU of the path, 0 for the MTU of the link.
	MTU int
}

// PolicyRule selects the routing table for the packets that arrive on a link, or for all packets.
type PolicyRule struct {
	Priority int
	// In is the link. If it is empty, the rule applies to all packets.
	In    string
	Table int
}

// Table is a table of nftables.
type Table struct {
	Name   string
	Sets   []Set
	Chains []Chain
}

// Set is a named set of address ranges.
type Set struct {
	Name   string
	Ranges []netip.Prefix
}

// Chain is a base chain. Packets that no rule decides are accepted, unless Drop is set.
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

// Hook is the place of a chain on the way of a packet.
type Hook string

// The hooks, in the order in which a forwarded packet, a received one or a sent one passes them.
const (
	Prerouting  Hook = "prerouting"
	Input       Hook = "input"
	Forwarding  Hook = "forward"
	Output      Hook = "output"
	Postrouting Hook = "postrouting"
)

// Rule applies an action to the packets that all set fields match.
type Rule struct {
	In, Out string // names of links
	// Source and Destination match ranges, SourceSet and DestinationSet named sets of the table.
	Source, Destination       netip.Prefix
	SourceSet, DestinationSet string
	// NotSourceSet inverts SourceSet, NotDestinationSet inverts DestinationSet.
	NotSourceSet, NotDestinationSet bool
	// Protocol is an IP protocol, and Port the destination port.
	Protocol uint8
	Port     uint16
	// Opening matches TCP segments that open a connection: SYN, and SYN with ACK.
	Opening bool
	// Count counts packets and bytes.
	Count  bool
	Action Action
	// Comment says what the rule is for. It is stored with the rule.
	Comment string
}

// Action is what a rule does. Exactly one field is set.
type Action struct {
	Accept, Drop, NoTrack bool
	// TranslateSource and TranslateDestination replace the address with an address of the range, and keep its host bits.
	TranslateSource, TranslateDestination netip.Prefix
	// KeepSource keeps the source address, so that no later chain replaces it: neither kube-proxy's nor the network plugin's.
	KeepSource bool
	// MaxSegment lowers the maximum segment size that a TCP segment announces to this number of bytes.
	MaxSegment uint16
}

// IP protocols.
const (
	ICMP uint8 = 1
	TCP  uint8 = 6
	UDP  uint8 = 17
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
	add(r.Protocol != 0 && r.Port == 0 && !r.Opening, "meta l4proto %d", r.Protocol)
	add(r.Port != 0, "meta l4proto %d th dport %d", r.Protocol, r.Port)
	add(r.Opening, "tcp flags & (syn | rst) == syn")
	add(r.Count, "counter")
	add(r.Action.Accept, "accept")
	add(r.Action.Drop, "drop")
	add(r.Action.NoTrack, "notrack")
	add(r.Action.TranslateSource.IsValid(), "snat prefix to %s", r.Action.TranslateSource)
	add(r.Action.TranslateDestination.IsValid(), "dnat prefix to %s", r.Action.TranslateDestination)
	add(r.Action.KeepSource, "snat to ip saddr")
	add(r.Action.MaxSegment != 0, "tcp option maxseg size set %d", r.Action.MaxSegment)
	add(r.Comment != "", "comment %q", r.Comment)
	return strings.Join(parts, " ")
}
