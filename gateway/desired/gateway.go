// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package desired

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	"k8s.io/apimachinery/pkg/types"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/gateway/netstate"
	"github.com/refract-project/refract/gateway/tunnel"
)

// TunnelLink is the name of the WireGuard device, as in Liqo.
const TunnelLink = "liqo-tunnel"

// PingPort is the UDP port at which gateways answer pings through the tunnel, as in Liqo.
const PingPort = 12345

// EchoPort is the UDP port at which a gateway answers the requests of nodes, through VXLAN only (package nodeleg).
const EchoPort = 6096

// The routing tables of a gateway. The link on which a packet arrives determines its table.
const (
	nodesTable  = 21001
	tunnelTable = 21002
	// echoTable has the routes of answers to nodes. It applies after the tables of the links, which forwarded packets use.
	echoTable    = 21003
	echoPriority = rulePriority + 1
)

const (
	// nodesMark is the mark of packets that a node has sent through VXLAN to the peer.
	nodesMark = 1
	// markedPriority is the priority of the routing rule for packets with nodesMark, and localPriority the one of the
	// kernel's table "local", which comes after it. A pod of the peer may have the same address as this pod. Packets to
	// it would otherwise be delivered to this pod.
	markedPriority, localPriority = 50, 60
)

// tcpHeaders is the length of the IPv4 and TCP headers without options.
const tcpHeaders = 40

// wireguardOverhead is the length of the headers that WireGuard adds: 32 bytes of its own, and the UDP and IPv4
// headers.
const wireguardOverhead = 60

// minMTU is the minimum MTU of a tunnel. IPv4 does not require hosts to accept longer packets (RFC 791).
const minMTU = 576

// The addresses of the two ends of the tunnel, as in Liqo.
var (
	serverAddress = netip.MustParsePrefix("169.254.18.1/30")
	clientAddress = netip.MustParsePrefix("169.254.18.2/30")
)

// GatewayScope lists the links, routing tables and nftables table that belong to a gateway, in the network namespace of
// its pod.
var GatewayScope = netstate.Scope{Links: []string{VXLANLink, TunnelLink}, RouteTables: []int{nodesTable, tunnelTable, echoTable},
	Table: TableName, LocalRule: true}

// Node is a node of this cluster as a gateway reaches it.
type Node struct {
	Name string
	// IP is the address of the node that the gateway sends packets to.
	IP netip.Addr
	// PodRanges are the ranges of the pods on the node.
	PodRanges []netip.Prefix
	// Pods are the addresses of pods on the node that are not in PodRanges. They are known only where the network plugin
	// does not use spec.podCIDRs of Nodes.
	Pods []netip.Addr
	// External is the node's own address in the external range of the cluster. If it is invalid, the node has no such
	// address, and processes on the node cannot reach the peer.
	External netip.Addr
}

// Peering contains the inputs of a gateway's configuration.
type Peering struct {
	// ClusterID is the ID of this cluster. RemoteClusterID is the ID of the peer.
	ClusterID, RemoteClusterID string

	Configuration *networking.Configuration
	// Exactly one of Server and Client is set. It describes this cluster's end of the tunnel.
	Server    *networking.GatewayServer
	Client    *networking.GatewayClient
	PublicKey *networking.PublicKey
	// OtherPublicKeys are further keys that the peer may use while it replaces its key. Keys that cannot be used are ignored.
	OtherPublicKeys [][]byte
	// PrivateKey is the private key of this cluster's gateway. It comes from a Secret.
	PrivateKey []byte
	// OwnPublicKeys are the public keys that are announced to the peer: the one of PrivateKey, and the one that it replaces or that
	// will replace it. It is empty if keys are not replaced.
	OwnPublicKeys [][]byte
	// Endpoint is the address of the peer's gateway. It is valid only if Client is set.
	Endpoint netip.AddrPort
	Nodes    []Node
	// Node is the name of the node that this pod runs on.
	Node string
	// Mappings are the addresses that peers reach in the external range of this cluster.
	Mappings []Mapping
	// PodMTU is the MTU of the pod's own link.
	PodMTU int
	// PathMTU is the size of the largest packets that reach the peer. It is 0 if this is not known to be less than the MTU of the
	// tunnel.
	PathMTU int
	// PodIP is the address of the pod. If it is invalid, the gateway does not answer the requests of nodes.
	PodIP netip.Addr
	// Standby is true while another pod of the gateway carries the packets. It does not affect the configuration, so
	// that this pod can take over immediately (see package gateway).
	Standby bool
	// Problem is the reason why the objects are ambiguous, such as two Configurations for one peer. It is empty if they
	// are not ambiguous.
	Problem string
}

// Gateway is the configuration of a gateway.
type Gateway struct {
	State  netstate.State
	Tunnel tunnel.Config
	MTU    int // MTU of the tunnel
	// Ping is the address and port at which the peer's gateway answers pings.
	Ping netip.AddrPort
}

// CompileGateway returns the configuration of a gateway.
func CompileGateway(p Peering) (Gateway, error) {
	if p.Problem != "" {
		return Gateway{}, errors.New(p.Problem)
	}
	ranges, err := parseConfiguration(p.Configuration)
	if err != nil {
		return Gateway{}, err
	}
	end, err := p.end()
	if err != nil {
		return Gateway{}, err
	}
	keys, err := p.tunnelConfig(ranges, end)
	if err != nil {
		return Gateway{}, err
	}
	mtu, routeMTU := end.mtu, 0
	if p.PathMTU > 0 && p.PathMTU < end.mtu {
		mtu, routeMTU = p.PathMTU, p.PathMTU
	}
	mappings := ranges.selectMappings(p.Mappings)
	state := netstate.State{
		Links: []netstate.Link{
			vxlan(p.PodMTU, gatewayMAC(end.uid)),
			// A pod of the peer may have the same address as this pod.
			{Name: TunnelLink, MTU: end.mtu, AcceptLocal: true, Addresses: []netip.Prefix{end.own}},
		},
		LocalPriority: localPriority,
		Rules: []netstate.PolicyRule{
			{Priority: markedPriority, In: VXLANLink, Mark: nodesMark, Table: nodesTable},
			{Priority: rulePriority, In: VXLANLink, Table: nodesTable},
			{Priority: rulePriority, In: TunnelLink, Table: tunnelTable},
			{Priority: echoPriority, Table: echoTable},
		},
		// Packets from a peer must not use the routes of the pod, and packets from a node must not be sent to the
		// internet.
		Routes: []netstate.Route{{Table: nodesTable, Destination: allAddresses}, {Table: tunnelTable, Destination: allAddresses}},
		Table:  gatewayTable(ranges, end, mtu, p, mappings),
	}
	for _, r := range ranges.remote {
		state.Routes = append(state.Routes, netstate.Route{Table: nodesTable, Destination: r.own, Link: TunnelLink, Via: end.other, MTU: routeMTU})
	}
	addNodes(&state, p.Nodes)
	addTargets(&state, mappings, p)
	return Gateway{State: state, Tunnel: keys, MTU: end.mtu, Ping: netip.AddrPortFrom(end.other, PingPort)}, nil
}

// ReadPathMTU returns the PathMTU of the kernel's configuration.
func ReadPathMTU(present netstate.State) int {
	for _, r := range present.Routes {
		if r.Table == nodesTable && r.Link == TunnelLink {
			return r.MTU
		}
	}
	return 0
}

// ResumeTunnel returns the tunnel of a gateway whose Configuration cannot be compiled. It takes the ranges of the peer
// from the kernel's configuration. The result has no State, because the kernel's configuration must not be changed.
func ResumeTunnel(p Peering, present netstate.State) (Gateway, error) {
	end, err := p.end()
	if err != nil {
		return Gateway{}, err
	}
	var known ranges
	for _, r := range present.Routes {
		if r.Table == nodesTable && r.Link == TunnelLink {
			known.remote = append(known.remote, remoteRange{own: r.Destination})
		}
	}
	if len(known.remote) == 0 {
		return Gateway{}, errors.New("the kernel has no ranges of the peer")
	}
	keys, err := p.tunnelConfig(known, end)
	if err != nil {
		return Gateway{}, err
	}
	return Gateway{Tunnel: keys, MTU: end.mtu, Ping: netip.AddrPortFrom(end.other, PingPort)}, nil
}

// errNotOneGateway is returned for a peering with both or neither of the two ends of the tunnel.
var errNotOneGateway = errors.New("a gateway is either a GatewayServer or a GatewayClient: delete one of them")

// end describes this cluster's end of the tunnel.
type end struct {
	name  string
	uid   types.UID
	mtu   int
	port  int
	own   netip.Prefix
	other netip.Addr
}

func (p Peering) end() (e end, err error) {
	switch {
	case (p.Server == nil) == (p.Client == nil):
		return e, errNotOneGateway
	case p.Server != nil:
		s := p.Server
		e = end{"GatewayServer " + s.Namespace + "/" + s.Name, s.UID, s.Spec.MTU, int(s.Spec.Endpoint.Port), serverAddress,
			clientAddress.Addr()}
		if e.port <= 0 || e.port > 65535 {
			return e, fmt.Errorf("%s, spec.endpoint.port %d is not a UDP port", e.name, e.port)
		}
	default:
		c := p.Client
		e = end{"GatewayClient " + c.Namespace + "/" + c.Name, c.UID, c.Spec.MTU, 0, clientAddress, serverAddress.Addr()}
	}
	if most := p.PodMTU - wireguardOverhead; e.mtu < minMTU || e.mtu > most {
		return e, fmt.Errorf("%s, spec.mtu %d is not between %d and the %d bytes that fit into a packet of the pod network", e.name,
			e.mtu, minMTU, most)
	}
	return e, nil
}

func (p Peering) tunnelConfig(ranges ranges, e end) (tunnel.Config, error) {
	private, err := wgtypes.NewKey(p.PrivateKey)
	if err != nil {
		return tunnel.Config{},
			fmt.Errorf("%s: the private key in its Secret has %d bytes instead of %d: delete the Secret, and then the pods of the gateway, to make new keys",
				e.name, len(p.PrivateKey), wgtypes.KeyLen)
	}
	if p.PublicKey == nil {
		return tunnel.Config{}, fmt.Errorf("%s: waiting for the PublicKey of the peer", e.name)
	}
	public, err := wgtypes.NewKey(p.PublicKey.Spec.PublicKey)
	if err != nil {
		return tunnel.Config{},
			fmt.Errorf("PublicKey %s/%s has %d bytes instead of %d: copy the key publicKey from the Secret of the peer's gateway",
				p.PublicKey.Namespace, p.PublicKey.Name, len(p.PublicKey.Spec.PublicKey), wgtypes.KeyLen)
	}
	if public == private.PublicKey() {
		return tunnel.Config{},
			fmt.Errorf("PublicKey %s/%s is the key of this cluster itself: copy the key publicKey from the Secret of the peer's gateway",
				p.PublicKey.Namespace, p.PublicKey.Name)
	}
	if p.Client != nil && !p.Endpoint.IsValid() {
		return tunnel.Config{}, fmt.Errorf("%s: waiting for an address of the peer's gateway", e.name)
	}
	peer := tunnel.Peer{PublicKey: public, AllowedIPs: []netip.Prefix{single(e.other)}}
	for _, other := range p.OtherPublicKeys {
		if key, err := wgtypes.NewKey(other); err == nil && key != public && key != private.PublicKey() {
			peer.OtherKeys = append(peer.OtherKeys, key)
		}
	}
	if p.Client != nil {
		peer.Endpoint = p.Endpoint
	}
	for _, r := range ranges.remote {
		peer.AllowedIPs = append(peer.AllowedIPs, r.own)
	}
	return tunnel.Config{PrivateKey: private, ListenPort: e.port, Peers: []tunnel.Peer{peer}}, nil
}

// addNodes adds routes to the nodes and to their pods.
func addNodes(state *netstate.State, nodes []Node) {
	hops := nextHops(nodeNames(nodes))
	for _, n := range nodes {
		targets := slices.Clone(n.PodRanges)
		for _, pod := range n.Pods {
			targets = append(targets, single(pod))
		}
		if n.External.IsValid() {
			targets = append(targets, single(n.External))
		}
		addHop(state, hop{hops[n.Name], nodeMAC(n.Name), n.IP}, tunnelTable, targets, 0)
		addEchoIn(echoTable, state, n.IP, nodeMAC(n.Name))
	}
}

func nodeNames(nodes []Node) (names []string) {
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names
}

// gatewayTable returns the nftables rules of a gateway. In the chain arrival, packets have the addresses that they
// arrived with. In the chain forward, the addresses of the peer are the true ones. For packets from the peer, this is
// also true in postrouting.
func gatewayTable(r ranges, e end, mtu int, p Peering, mappings map[netip.Addr]netip.Addr) netstate.Table {
	outgoing := []netstate.Rule{{In: TunnelLink, Action: netstate.Action{MapDestination: mappingsMap}}}
	var incoming []netstate.Rule
	for _, remote := range r.remote {
		if remote.own == remote.seen {
			continue
		}
		outgoing = append(outgoing, netstate.Rule{In: VXLANLink, Destination: remote.seen,
			Action: netstate.Action{TranslateDestination: remote.own}})
		incoming = append(incoming, netstate.Rule{In: TunnelLink, Source: remote.own,
			Action: netstate.Action{TranslateSource: remote.seen}})
	}
	drop, accept := netstate.Action{Drop: true}, netstate.Action{Accept: true}
	var nodes []netip.Prefix
	for _, n := range p.Nodes {
		nodes = append(nodes, single(n.IP))
	}
	var echo []netstate.Rule
	if p.PodIP.IsValid() {
		echo = []netstate.Rule{{In: VXLANLink, SourceSet: "nodes", Destination: single(p.PodIP), Protocol: netstate.UDP, Port: EchoPort,
			Count: true, Action: accept, Comment: "request of a node"}}
	}
	own := []netip.Prefix{single(e.own.Addr())}
	if p.PodIP.IsValid() {
		own = append(own, single(p.PodIP))
	}
	return netstate.Table{
		Name: TableName,
		Sets: []netstate.Set{{Name: "local", Ranges: r.local}, {Name: "remote", Ranges: r.trueRemote()}, {Name: "nodes", Ranges: nodes},
			{Name: "own", Ranges: own},
			{Name: targetsSet, Ranges: targetRanges(mappings)}},
		Maps: []netstate.AddressMap{{Name: mappingsMap, Entries: mappings}},
		Chains: []netstate.Chain{
			// Each inner connection has its own VXLAN source port, so the kernel would track the outer flow as well.
			{Name: "raw", Type: netstate.Filter, Hook: netstate.Prerouting, Priority: -300, Rules: []netstate.Rule{
				{In: VXLANLink, Action: accept}, {In: TunnelLink, Action: accept},
				{Protocol: netstate.UDP, Port: VXLANPort, Action: netstate.Action{NoTrack: true}}}},
			{Name: "output", Type: netstate.Filter, Hook: netstate.Output, Priority: -300, Rules: []netstate.Rule{
				{Protocol: netstate.UDP, Port: VXLANPort, Action: netstate.Action{NoTrack: true}}}},
			{Name: "arrival", Type: netstate.Filter, Hook: netstate.Prerouting, Priority: -150, Rules: slices.Concat(echo, []netstate.Rule{
				{In: TunnelLink, Source: single(e.other), Destination: single(e.own.Addr()), Action: accept,
					Comment: "from gateway to gateway"},
				{In: TunnelLink, SourceSet: "remote", NotSourceSet: true, Count: true, Action: drop,
					Comment: "source outside of the peer's ranges"},
				{In: TunnelLink, DestinationSet: "local", NotDestinationSet: true, Count: true, Action: drop,
					Comment: "destination outside of this cluster's ranges"},
				{In: VXLANLink, SourceSet: targetsSet, Answer: true, Action: accept, Comment: "answer of the target of an IP"},
				{In: VXLANLink, SourceSet: "local", NotSourceSet: true, Count: true, Action: drop,
					Comment: "source outside of this cluster's ranges"},
				{In: VXLANLink, DestinationSet: "own", NotDestinationSet: true, Action: netstate.Action{Mark: nodesMark},
					Comment: "to the peer"},
			})},
			{Name: "prerouting", Type: netstate.NAT, Hook: netstate.Prerouting, Priority: -100, Rules: outgoing},
			{Name: "postrouting", Type: netstate.NAT, Hook: netstate.Postrouting, Priority: 100, Rules: incoming},
			{Name: "forward", Type: netstate.Filter, Hook: netstate.Forwarding, Drop: true, Rules: []netstate.Rule{
				{Opening: true, Action: netstate.Action{MaxSegment: uint16(mtu - tcpHeaders)}},
				{In: TunnelLink, Out: VXLANLink, Count: true, Action: accept, Comment: "from the peer"},
				{In: VXLANLink, Out: TunnelLink, DestinationSet: "remote", Count: true, Action: accept, Comment: "to the peer"},
				{Count: true, Action: drop, Comment: "no way through the gateway"},
			}},
			{Name: "input", Type: netstate.Filter, Hook: netstate.Input, Rules: slices.Concat(echo, []netstate.Rule{
				{In: TunnelLink, Protocol: netstate.UDP, Port: PingPort, Action: accept, Comment: "ping of the peer's gateway"},
				// Pings announce keys, so that nobody else may send them, with whatever source address.
				{Protocol: netstate.UDP, Port: PingPort, Count: true, Action: drop, Comment: "ping from outside of the tunnel"},
				{In: TunnelLink, Protocol: netstate.ICMP, Action: accept},
				{In: TunnelLink, Count: true, Action: drop, Comment: "to the gateway itself, from the peer"},
				{In: VXLANLink, Protocol: netstate.ICMP, Action: accept},
				{In: VXLANLink, Count: true, Action: drop, Comment: "to the gateway itself, from a node"},
			})},
		},
	}
}
