// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package desired

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/gateway/netstate"
	"github.com/refract-project/refract/gateway/nodeleg"
)

// peersTable is the routing table with the routes to peers on a node. It contains no other routes.
const peersTable = 21000

// podsSet is the name of the nftables set with the pod ranges of this cluster.
const podsSet = "pods"

// hostTargetsSet is the name of the nftables set with the targets of IPs that may be addresses of a node.
const hostTargetsSet = "targets"

// masqueradedSet is the name of the nftables set with the targets of IPs that see the address of a node.
const masqueradedSet = "masqueraded"

// NodeScope lists the links, routing tables and nftables table that belong to the agent on a node.
var NodeScope = netstate.Scope{Links: []string{VXLANLink}, RouteTables: []int{peersTable}, Table: TableName}

// Host contains the inputs of a node's configuration.
type Host struct {
	Name string
	// IP is the node's address that gateways send packets to.
	IP netip.Addr
	// External is the node's own address in the external range of the cluster. If it is invalid, processes on the node
	// cannot reach peers.
	External netip.Addr
	// Nodes are the addresses of all nodes. If the network plugin masquerades pods, the packets of a gateway have one
	// of them as their source.
	Nodes []netip.Addr
	// Targets are the targets of IPs. Masqueraded are those that have no route to peers.
	Targets, Masqueraded []netip.Addr
	Peers                []Peer
	// MTU is the MTU of the network between nodes and pods.
	MTU int
	// Home is nil if the addresses of Services in the clusters of consumers are not translated.
	Home *Home
}

// Peer contains the objects of one peering. Exactly one of Server and Client is set.
type Peer struct {
	Configuration *networking.Configuration
	Server        *networking.GatewayServer
	Client        *networking.GatewayClient
	// Problem is the reason why the objects are ambiguous, such as two Configurations for one peer. It is empty if they
	// are not ambiguous.
	Problem string
}

// Refusal is the reason why the objects of a peer are not applied.
type Refusal struct {
	// Peer is the name of the peer's gateway.
	Peer string
	// Kept is true if the peer keeps its previous configuration.
	Kept bool
	Err  error
}

func (r *Refusal) Error() string {
	if r.Kept {
		return r.Err.Error() + " (until then, the node keeps the last configuration of this peer)"
	}
	return r.Err.Error()
}

func (r *Refusal) Unwrap() error { return r.Err }

// NodeCompiler compiles the configuration of a node. It remembers the last valid configuration of each peer. It is not
// safe for concurrent use.
type NodeCompiler struct {
	// accepted contains the paths to the peers in the last configuration, by the UID of the gateway.
	accepted map[types.UID]way
	// present is the kernel's configuration before the first Compile. After a restart, it is used instead of accepted.
	present netstate.State
}

// NewNodeCompiler returns a NodeCompiler that starts with the kernel's present configuration.
func NewNodeCompiler(present netstate.State) *NodeCompiler { return &NodeCompiler{present: present} }

// Compile returns the configuration of a node. If the objects of a peer are incomplete or refused, the joined error
// contains a Refusal. The peer keeps its last configuration as long as its gateway is in the Host, unless a complete
// peer uses one of its addresses: in this case the controller manager has granted these addresses again. The order of
// the peers does not matter unless they conflict.
func (c *NodeCompiler) Compile(h Host) (netstate.State, error) {
	var known, added, kept []way
	var errs []error
	refuse := func(p Peer, name string, err error) {
		last, ok := c.findLast(p)
		if ok {
			last.name = name
			kept = append(kept, last)
		}
		errs = append(errs, &Refusal{Peer: name, Kept: ok, Err: err})
	}
	peers := map[types.UID]Peer{}
	for _, p := range h.Peers {
		w, err := p.way()
		if hidden := w.findNode(h.Nodes); err == nil && hidden != nil {
			// The last configuration is not kept, because it would cut off the node.
			errs = append(errs, &Refusal{Peer: w.name, Err: hidden})
			continue
		}
		switch last, ok := c.accepted[w.uid]; {
		case err != nil:
			refuse(p, w.name, err)
			continue
		case ok && slices.Equal(last.ranges.remote, w.ranges.remote):
			known = append(known, w)
		default:
			added = append(added, w)
		}
		peers[w.uid] = p
	}
	var ways []way
	for _, w := range slices.Concat(known, added) {
		if err := w.findConflict(ways); err != nil {
			refuse(peers[w.uid], w.name, err)
			continue
		}
		ways = append(ways, w)
	}
	for _, w := range kept {
		if err := errors.Join(w.findNode(h.Nodes), w.findConflict(ways)); err != nil {
			errs = append(errs, &Refusal{Peer: w.name, Err: err})
			continue
		}
		ways = append(ways, w)
	}
	c.accepted, c.present = map[types.UID]way{}, netstate.State{}
	for _, w := range ways {
		c.accepted[w.uid] = w
	}
	return h.state(ways), errors.Join(errs...)
}

// Gateways returns the active pods of the gateways in the last configuration.
func (c *NodeCompiler) Gateways() (gateways []nodeleg.End) {
	for _, w := range c.accepted {
		gateways = append(gateways, nodeleg.End{Name: w.name, Address: w.pod})
	}
	return gateways
}

// findLast returns the path to a peer in the last valid configuration.
func (c *NodeCompiler) findLast(p Peer) (way, bool) {
	for _, uid := range p.uids() {
		if w, ok := c.accepted[uid]; ok {
			return w, true
		}
		if w, ok := readWay(c.present, uid); ok {
			return w, true
		}
	}
	return way{}, false
}

func (p Peer) uids() (uids []types.UID) {
	if p.Client != nil {
		uids = append(uids, p.Client.UID)
	}
	if p.Server != nil {
		uids = append(uids, p.Server.UID)
	}
	return uids
}

// readWay reads the path to a peer from the kernel's configuration. The MAC identifies the gateway. From the MAC it
// finds the next hop and the pod, and from the next hop the ranges.
func readWay(present netstate.State, uid types.UID) (way, bool) {
	w := way{uid: uid}
	mac := gatewayMAC(uid)
	for _, f := range present.Forwards {
		if f.MAC == mac {
			w.pod = f.Host
		}
	}
	for _, n := range present.Neighbours {
		if n.MAC != mac {
			continue
		}
		for _, r := range present.Routes {
			if r.Via == n.IP && r.Table == peersTable {
				w.mtu = r.MTU
				// A node does not know the true range of the peer.
				w.ranges.remote = append(w.ranges.remote, remoteRange{seen: r.Destination})
			}
		}
	}
	for _, s := range present.Table.Sets {
		if s.Name == podsSet {
			w.ranges.localPods = s.Ranges
		}
	}
	return w, w.pod.IsValid() && len(w.ranges.remote) > 0
}

// state returns the configuration for the paths to the peers. Without a peer, it contains only what translates addresses of home, if
// there are any, so that nothing remains on nodes after the last peer was removed, also if the agents are removed later.
func (h Host) state(ways []way) netstate.State {
	if len(ways) == 0 {
		if h.Home == nil || len(h.Home.Pods) == 0 && len(h.Home.Ports) == 0 {
			return netstate.State{}
		}
		return netstate.State{Table: nodeTable(h, nodeSets{hosts: hostRanges(h.Nodes)})}
	}
	state := netstate.State{
		Links: []netstate.Link{vxlan(h.MTU, nodeMAC(h.Name))},
		Rules: []netstate.PolicyRule{{Priority: rulePriority, Table: peersTable}},
	}
	slices.SortFunc(ways, func(a, b way) int { return cmp.Compare(a.uid, b.uid) })
	uids := make([]string, 0, len(ways))
	for _, w := range ways {
		uids = append(uids, string(w.uid))
	}
	hops := nextHops(uids)
	table := nodeSets{hosts: hostRanges(h.Nodes)}
	for _, w := range ways {
		addHop(&state, hop{hops[string(w.uid)], gatewayMAC(w.uid), w.pod}, peersTable, w.ranges.seenRemote(), min(w.mtu,
			h.MTU-vxlanOverhead))
		addEcho(&state, w.pod, gatewayMAC(w.uid))
		table.peers = append(table.peers, w.ranges.seenRemote()...)
		table.hosts = append(table.hosts, single(w.pod))
		table.pods = append(table.pods, w.ranges.localPods...)
	}
	state.Table = nodeTable(h, table)
	return state
}

// way is the path to one peer.
type way struct {
	name   string
	uid    types.UID
	pod    netip.Addr // address of the gateway's active pod
	mtu    int
	ranges ranges
}

func (p Peer) way() (w way, err error) {
	var internal *networking.InternalGatewayEndpoint
	switch {
	case p.Server == nil && p.Client == nil:
		return w, errNotOneGateway
	case p.Server != nil && p.Client != nil:
		w.name = "GatewayServer " + p.Server.Namespace + "/" + p.Server.Name
		return w, errNotOneGateway
	case p.Server != nil:
		w = way{name: "GatewayServer " + p.Server.Namespace + "/" + p.Server.Name, uid: p.Server.UID, mtu: p.Server.Spec.MTU}
		internal = p.Server.Status.InternalEndpoint
	default:
		w = way{name: "GatewayClient " + p.Client.Namespace + "/" + p.Client.Name, uid: p.Client.UID, mtu: p.Client.Spec.MTU}
		internal = p.Client.Status.InternalEndpoint
	}
	if p.Problem != "" {
		return w, errors.New(p.Problem)
	}
	if internal == nil || internal.IP == nil {
		return w, fmt.Errorf("%s: waiting for a pod of the gateway (status.internalEndpoint.ip)", w.name)
	}
	if w.pod, err = netip.ParseAddr(string(*internal.IP)); err != nil || !w.pod.Is4() {
		return w, fmt.Errorf("%s, status.internalEndpoint.ip %q is not an IPv4 address", w.name, *internal.IP)
	}
	if w.mtu < minMTU {
		return w, fmt.Errorf("%s, spec.mtu %d is less than %d", w.name, w.mtu, minMTU)
	}
	w.ranges, err = parseConfiguration(p.Configuration)
	return w, err
}

// findNode returns an error if a node has an address in a range of the peer. This happens when a node appears after the
// range was granted. Packets of the other nodes to it would go to the peer.
func (w way) findNode(nodes []netip.Addr) error {
	for _, r := range w.ranges.remote {
		for _, node := range nodes {
			if r.seen.Contains(node) {
				const text = "%s: the range %s contains the address %s of a node: " +
					"delete the Network of the range, so that the peer gets another one"
				return fmt.Errorf(text, w.name, r.seen, node)
			}
		}
	}
	return nil
}

// findConflict returns an error if another peer uses one of the addresses. This is not expected, because IPAM does not
// grant an address twice.
func (w way) findConflict(others []way) error {
	for _, o := range others {
		for _, a := range w.ranges.remote {
			for _, b := range o.ranges.remote {
				if a.seen.Overlaps(b.seen) {
					const text = "%s: the range %s overlaps %s of %s: delete the Networks of one of them, so that it gets another range"
					return fmt.Errorf(text, w.name, a.seen, b.seen, o.name)
				}
			}
		}
	}
	return nil
}

// nodeSets contains the content of the nftables sets on a node.
type nodeSets struct{ peers, pods, hosts []netip.Prefix }

// selectHostTargets returns the targets of IPs that may be addresses of a node, or of a Service, which are addresses of
// all nodes if kube-proxy uses IPVS: those that belong neither to a pod nor to a peer.
func (s nodeSets) selectHostTargets(targets []netip.Addr) (selected []netip.Prefix) {
	for _, target := range targets {
		isTarget := func(r netip.Prefix) bool { return r.Contains(target) }
		if !slices.ContainsFunc(s.pods, isTarget) && !slices.ContainsFunc(s.peers, isTarget) {
			selected = append(selected, single(target))
		}
	}
	return selected
}

// nodeTable returns the nftables rules of a node. The chain postrouting comes immediately before the chains where
// kube-proxy and network plugins masquerade, because only the first translation of a connection takes effect.
func nodeTable(h Host, sets nodeSets) netstate.Table {
	drop := netstate.Action{Drop: true}
	host := single(h.IP)
	var postrouting []netstate.Rule
	if h.External.IsValid() {
		postrouting = append(postrouting, netstate.Rule{In: VXLANLink, Out: VXLANLink, DestinationSet: "peers",
			Action: netstate.Action{TranslateSource: single(h.External)}, Comment: "from one peer to another one, by an IP"})
	}
	postrouting = append(postrouting, []netstate.Rule{
		{In: VXLANLink, DestinationSet: masqueradedSet, Action: netstate.Action{Masquerade: true},
			Comment: "to an IP with spec.masquerade"},
		// Another node would not translate the answer of a Service.
		{In: VXLANLink, DestinationTranslated: true, Action: netstate.Action{Masquerade: true}, Comment: "to a Service, by an IP"},
		{Out: VXLANLink, Source: host, Protocol: netstate.UDP, Port: EchoPort, Action: netstate.Action{KeepSource: true},
			Comment: "requests of the node to gateways"},
		{Out: VXLANLink, SourceSet: "pods", DestinationSet: "peers", Action: netstate.Action{KeepSource: true},
			Comment: "pods keep their address"},
		{In: VXLANLink, SourceSet: "peers", Action: netstate.Action{KeepSource: true}, Comment: "pods of peers keep their address"},
	}...)
	if h.External.IsValid() {
		postrouting = append(postrouting, netstate.Rule{Out: VXLANLink, DestinationSet: "peers",
			Comment: "processes of the node, and clients of its ports",
			Action:  netstate.Action{TranslateSource: single(h.External)}})
	}
	arrival := []netstate.Rule{
		{In: VXLANLink, Answer: true, Action: netstate.Action{Accept: true}},
		{In: VXLANLink, DestinationSet: hostTargetsSet, Action: netstate.Action{Accept: true}, Comment: "to the target of an IP"},
		{In: VXLANLink, ToHost: true, Count: true, Action: drop, Comment: "to the node itself, from a peer"},
	}
	if h.External.IsValid() {
		// It is no address of the node, which would send such packets on to its own network.
		arrival = append(arrival, netstate.Rule{In: VXLANLink, Destination: single(h.External), Count: true, Action: drop,
			Comment: "to the address by which peers see the node"})
	}
	return netstate.Table{
		Name: TableName,
		Sets: []netstate.Set{{Name: "peers", Ranges: sets.peers}, {Name: podsSet, Ranges: sets.pods}, {Name: "hosts", Ranges: sets.hosts},
			{Name: masqueradedSet, Ranges: hostRanges(h.Masqueraded)}, {Name: hostTargetsSet, Ranges: sets.selectHostTargets(h.Targets)}},
		Chains: []netstate.Chain{
			{Name: "raw", Type: netstate.Filter, Hook: netstate.Prerouting, Priority: -300, Rules: []netstate.Rule{
				{Destination: host, Protocol: netstate.UDP, Port: VXLANPort, Action: netstate.Action{NoTrack: true}}}},
			// Nodes have addresses within the pod ranges, such as those of bridges. The chain comes before kube-proxy, which
			// would lead packets to them to Services with node ports.
			{Name: "arrival", Type: netstate.Filter, Hook: netstate.Prerouting, Priority: -150, Rules: arrival},
			{Name: "output", Type: netstate.Filter, Hook: netstate.Output, Priority: -300, Rules: []netstate.Rule{
				{Source: host, Protocol: netstate.UDP, Port: VXLANPort, Action: netstate.Action{NoTrack: true}}}},
			{Name: "input", Type: netstate.Filter, Hook: netstate.Input, Priority: -10, Rules: []netstate.Rule{
				{SourceSet: "hosts", NotSourceSet: true, Protocol: netstate.UDP, Port: VXLANPort, Count: true, Action: drop,
					Comment: "VXLAN of neither a gateway nor a node"}}},
			{Name: "postrouting", Type: netstate.NAT, Hook: netstate.Postrouting, Priority: 99, Rules: postrouting},
		},
		Services: h.services(),
	}
}

func hostRanges(addresses []netip.Addr) (ranges []netip.Prefix) {
	for _, a := range addresses {
		ranges = append(ranges, single(a))
	}
	return ranges
}

// single returns a range that contains only the address a.
func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
