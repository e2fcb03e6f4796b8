// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package desired

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/gateway/netstate"
	"github.com/refract-project/refract/gateway/nodeleg"
)

// newConfiguration returns the Configuration of a peer that uses the same ranges as this cluster.
func newConfiguration() *networking.Configuration {
	ranges := func(pod, external networking.CIDR) networking.ClusterConfig {
		return networking.ClusterConfig{CIDR: networking.ClusterConfigCIDR{Pod: []networking.CIDR{pod},
			External: []networking.CIDR{external}}}
	}
	local, remote := ranges("10.1.0.0/16", "10.70.0.0/16"), ranges("10.61.0.0/16", "10.62.0.0/16")
	return &networking.Configuration{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan", Generation: 2},
		Spec:       networking.ConfigurationSpec{Local: &local, Remote: ranges("10.1.0.0/16", "10.70.0.0/16")},
		Status: networking.ConfigurationStatus{Remote: &remote,
			Conditions: []metav1.Condition{{Type: networking.ConfiguredCondition, Status: metav1.ConditionTrue, ObservedGeneration: 2}}},
	}
}

func newClient() *networking.GatewayClient {
	ip := networking.IP("10.1.2.5")
	return &networking.GatewayClient{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan", UID: "client-uid"},
		Spec:   networking.GatewayClientSpec{MTU: 1340},
		Status: networking.GatewayClientStatus{InternalEndpoint: &networking.InternalGatewayEndpoint{IP: &ip}}}
}

func newServer() *networking.GatewayServer {
	ip := networking.IP("10.1.3.5")
	return &networking.GatewayServer{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan", UID: "server-uid"},
		Spec:   networking.GatewayServerSpec{MTU: 1340, Endpoint: networking.Endpoint{Port: 51840}},
		Status: networking.GatewayServerStatus{InternalEndpoint: &networking.InternalGatewayEndpoint{IP: &ip}}}
}

func newPeering() Peering {
	return Peering{
		ClusterID: "rome", RemoteClusterID: "milan", Configuration: newConfiguration(), Client: newClient(),
		PublicKey: &networking.PublicKey{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"},
			Spec: networking.PublicKeySpec{PublicKey: make([]byte, 32)}},
		PrivateKey: append(make([]byte, 31), 1), Endpoint: netip.MustParseAddrPort("203.0.113.2:51840"), PodMTU: 1500,
		PodIP: netip.MustParseAddr("10.1.2.5"), Node: "b",
		Mappings: []Mapping{
			{Granted: netip.MustParseAddr("10.70.1.1"), Target: netip.MustParseAddr("10.63.1.10")},
			{Granted: netip.MustParseAddr("10.70.1.2"), Target: netip.MustParseAddr("10.1.1.9")},
			{Granted: netip.MustParseAddr("10.71.1.1"), Target: netip.MustParseAddr("10.63.1.11")},
		},
		Nodes: []Node{
			{Name: "a", IP: netip.MustParseAddr("192.168.0.1"), PodRanges: []netip.Prefix{netip.MustParsePrefix("10.1.1.0/24")},
				External: netip.MustParseAddr("10.70.0.5")},
			{Name: "b", IP: netip.MustParseAddr("192.168.0.2"), PodRanges: []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")}},
		},
	}
}

func newHost() Host {
	return Host{Name: "a", IP: netip.MustParseAddr("192.168.0.1"), External: netip.MustParseAddr("10.70.0.5"), MTU: 1500,
		Nodes: []netip.Addr{netip.MustParseAddr("192.168.0.1"), netip.MustParseAddr("192.168.0.2")},
		Peers: []Peer{{Configuration: newConfiguration(), Client: newClient()}}}
}

// format returns a State as text, in the notation of ip and nft.
func format(s netstate.State) string {
	var b strings.Builder
	line := func(format string, values ...any) { fmt.Fprintf(&b, format+"\n", values...) }
	for _, l := range s.Links {
		line("link %s mtu %d %v accept local %v", l.Name, l.MTU, l.Addresses, l.AcceptLocal)
		if l.VXLAN != nil {
			line("  vxlan id %d port %d mac %s", l.VXLAN.ID, l.VXLAN.Port, l.VXLAN.MAC)
		}
	}
	for _, n := range s.Neighbours {
		line("neighbour %s dev %s mac %s", n.IP, n.Link, n.MAC)
	}
	for _, f := range s.Forwards {
		line("forward %s dev %s to %s", f.MAC, f.Link, f.Host)
	}
	for _, r := range s.Routes {
		switch {
		case r.Link == "":
			line("route table %d unreachable %s", r.Table, r.Destination)
		case !r.Via.IsValid():
			line("route table %d %s tos %#x dev %s", r.Table, r.Destination, r.TOS, r.Link)
		default:
			line("route table %d %s via %s dev %s mtu %d", r.Table, r.Destination, r.Via, r.Link, r.MTU)
		}
	}
	for _, r := range s.Rules {
		line("rule %d from %q mark %d table %d", r.Priority, r.In, r.Mark, r.Table)
	}
	line("rule %d table local", s.LocalPriority)
	line("table %s", s.Table.Name)
	for _, set := range s.Table.Sets {
		line("  set %s %v", set.Name, set.Ranges)
	}
	for _, m := range s.Table.Maps {
		line("  map %s %v", m.Name, m.Entries)
	}
	for _, c := range s.Table.Chains {
		line("  chain %s type %s hook %s priority %d drop=%v", c.Name, c.Type, c.Hook, c.Priority, c.Drop)
		for _, r := range c.Rules {
			line("    %s", r)
		}
	}
	return b.String()
}

// TestCompile compares the configuration for two clusters with the same ranges with the files in testdata. Set
// REFRACT_UPDATE to update the files.
func TestCompile(t *testing.T) {
	gateway, err := CompileGateway(newPeering())
	require.NoError(t, err)
	host := newHost()
	host.Masqueraded = []netip.Addr{netip.MustParseAddr("198.51.100.5")}
	host.Targets = []netip.Addr{netip.MustParseAddr("198.51.100.5"), netip.MustParseAddr("10.1.1.9"), netip.MustParseAddr("10.61.1.9")}
	node, err := compileNode(host)
	require.NoError(t, err)
	for name, state := range map[string]netstate.State{"gateway": gateway.State, "node": node} {
		file := "testdata/" + name + ".txt"
		if os.Getenv("REFRACT_UPDATE") != "" {
			require.NoError(t, os.WriteFile(file, []byte(format(state)), 0o644))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, string(want), format(state))
	}
	peer := gateway.Tunnel.Peers[0]
	require.Equal(t, "[169.254.18.1/32 10.1.0.0/16 10.70.0.0/16]", fmt.Sprint(peer.AllowedIPs))
	require.Equal(t, "203.0.113.2:51840", peer.Endpoint.String())
	require.Equal(t, "169.254.18.1:12345", gateway.Ping.String())
	require.Zero(t, gateway.Tunnel.ListenPort)
}

// TestServer checks the differences between the configuration of a server and of a client.
func TestServer(t *testing.T) {
	p := newPeering()
	p.Client, p.Server, p.Endpoint = nil, newServer(), netip.AddrPort{}
	gateway, err := CompileGateway(p)
	require.NoError(t, err)
	require.Equal(t, 51840, gateway.Tunnel.ListenPort)
	require.False(t, gateway.Tunnel.Peers[0].Endpoint.IsValid())
	require.Equal(t, "169.254.18.2:12345", gateway.Ping.String())
	require.Equal(t, []netip.Prefix{serverAddress}, gateway.State.Links[1].Addresses)
}

// TestPathMTU checks that packets are limited to the size that reaches the peer, that this is found again after a restart, and that
// a larger size than that of the tunnel changes nothing.
func TestPathMTU(t *testing.T) {
	p := newPeering()
	full, err := CompileGateway(p)
	require.NoError(t, err)
	require.Zero(t, ReadPathMTU(full.State))
	p.PathMTU = 1216
	limited, err := CompileGateway(p)
	require.NoError(t, err)
	text := format(limited.State)
	require.Contains(t, text, "route table 21001 10.1.0.0/16 via 169.254.18.1 dev liqo-tunnel mtu 1216")
	require.Contains(t, text, "tcp option maxseg size set 1176")
	require.Contains(t, text, "link liqo-tunnel mtu 1340", "probes of that size must leave the gateway")
	require.Equal(t, 1340, limited.MTU)
	require.Equal(t, 1216, ReadPathMTU(limited.State))
	for _, size := range []int{1340, 1400} {
		p.PathMTU = size
		same, err := CompileGateway(p)
		require.NoError(t, err)
		require.Equal(t, format(full.State), format(same.State))
	}
}

// TestRequestsOfNodes checks that a gateway that does not know its address lets no requests of nodes through.
func TestRequestsOfNodes(t *testing.T) {
	p := newPeering()
	p.PodIP = netip.Addr{}
	gateway, err := CompileGateway(p)
	require.NoError(t, err)
	require.NotContains(t, format(gateway.State), "dport 6096")
	compiler := NewNodeCompiler(netstate.State{})
	_, err = compiler.Compile(newHost())
	require.NoError(t, err)
	require.Equal(t, []nodeleg.End{{Name: "GatewayClient liqo-tenant-milan/milan", Address: netip.MustParseAddr("10.1.2.5")}}, compiler.Gateways())
}

// TestRangesThatDiffer checks that there are no rules for a range that is not remapped, and that ranges are paired by
// their order.
func TestRangesThatDiffer(t *testing.T) {
	p := newPeering()
	p.Configuration.Spec.Remote.CIDR.Pod = []networking.CIDR{"10.9.0.0/16", "10.1.0.0/24"}
	p.Configuration.Status.Remote.CIDR.Pod = []networking.CIDR{"10.9.0.0/16", "10.61.3.0/24"}
	gateway, err := CompileGateway(p)
	require.NoError(t, err)
	text := format(gateway.State)
	require.NotContains(t, text, "prefix to 10.9.0.0/16")
	require.Contains(t, text, `iifname "refract.vx" ip daddr 10.61.3.0/24 dnat prefix to 10.1.0.0/24`)
	require.Contains(t, text, `iifname "liqo-tunnel" ip saddr 10.1.0.0/24 snat prefix to 10.61.3.0/24`)
}

// TestRefusedPeerings checks the error messages for objects that are missing, incomplete or harmful.
func TestRefusedPeerings(t *testing.T) {
	for want, change := range map[string]func(*Peering){
		"waiting for the Configuration":                   func(p *Peering) { p.Configuration = nil },
		"spec.local.cidr.pod is empty":                    func(p *Peering) { p.Configuration.Spec.Local = nil },
		"spec.remote.cidr.pod is empty":                   func(p *Peering) { p.Configuration.Spec.Remote.CIDR.Pod = nil },
		"not all of spec.remote.cidr.pod":                 func(p *Peering) { p.Configuration.Status.Remote = nil },
		"not all of spec.remote.cidr.external":            func(p *Peering) { p.Configuration.Status.Remote.CIDR.External = nil },
		"that of an earlier spec":                         func(p *Peering) { p.Configuration.Generation = 3 },
		"is False (WaitingForNetworks)":                   func(p *Peering) { setCondition(p, metav1.ConditionFalse) },
		"10.61.0.0/17 is not of the size of 10.1.0.0/16":  func(p *Peering) { p.Configuration.Status.Remote.CIDR.Pod[0] = "10.61.0.0/17" },
		"10.1.0.0/16 overlaps 10.1.0.0/16 of this cluste": func(p *Peering) { p.Configuration.Status.Remote.CIDR.Pod[0] = "10.1.0.0/16" },
		"spec.remote.cidr: 0.0.0.0/0 is larger":           func(p *Peering) { p.Configuration.Spec.Remote.CIDR.Pod[0] = "0.0.0.0/0" },
		"status.remote.cidr: 127.0.0.0/16 overlaps":       func(p *Peering) { p.Configuration.Status.Remote.CIDR.Pod[0] = "127.0.0.0/16" },
		"status.remote.cidr: 169.254.0.0/16 overlaps": func(p *Peering) {
			p.Configuration.Status.Remote.CIDR.Pod[0] = "169.254.0.0/16"
		},
		"fd00::/16 is not an IPv4 range":                func(p *Peering) { p.Configuration.Spec.Remote.CIDR.Pod[0] = "fd00::/16" },
		"17 ranges are too many":                        func(p *Peering) { addRanges(p, 16) },
		"delete one of them":                            func(p *Peering) { p.Server = newServer() },
		"either a GatewayServer or":                     func(p *Peering) { p.Client = nil },
		"spec.mtu 9000 is not between 576 and the 1440": func(p *Peering) { p.Client.Spec.MTU = 9000 },
		"spec.mtu 0 is not":                             func(p *Peering) { p.Client.Spec.MTU = 0 },
		"spec.endpoint.port 0 is not a UDP port": func(p *Peering) {
			p.Client, p.Server = nil, newServer()
			p.Server.Spec.Endpoint.Port = 0
		},
		"the private key in its Secret has 3 bytes":           func(p *Peering) { p.PrivateKey = []byte("key") },
		"waiting for the PublicKey":                           func(p *Peering) { p.PublicKey = nil },
		"PublicKey liqo-tenant-milan/milan has 31 bytes":      func(p *Peering) { p.PublicKey.Spec.PublicKey = make([]byte, 31) },
		"is the key of this cluster itself":                   func(p *Peering) { p.PublicKey.Spec.PublicKey = publicKey(p.PrivateKey) },
		"waiting for an address of the peer's gateway":        func(p *Peering) { p.Endpoint = netip.AddrPort{} },
		"spec.local.cidr.external: \"x\" is no address range": func(p *Peering) { p.Configuration.Spec.Local.CIDR.External[0] = "x" },
	} {
		t.Run(want, func(t *testing.T) {
			p := newPeering()
			change(&p)
			gateway, err := CompileGateway(p)
			require.ErrorContains(t, err, want)
			require.Zero(t, gateway)
			require.NotContains(t, err.Error(), "AAAAAAAA", "a key is not part of an error")
		})
	}
}

func setCondition(p *Peering, status metav1.ConditionStatus) {
	p.Configuration.Status.Conditions[0].Status, p.Configuration.Status.Conditions[0].Reason = status, "WaitingForNetworks"
}

func addRanges(p *Peering, n int) {
	for i := range n - 1 {
		r := networking.CIDR(fmt.Sprintf("10.2.%d.0/24", i))
		p.Configuration.Spec.Remote.CIDR.Pod = append(p.Configuration.Spec.Remote.CIDR.Pod, r)
		p.Configuration.Status.Remote.CIDR.Pod = append(p.Configuration.Status.Remote.CIDR.Pod, r)
	}
}

func publicKey(private []byte) []byte {
	key, _ := wgtypes.NewKey(private)
	public := key.PublicKey()
	return public[:]
}

// TestNodeWithABadPeer checks that a peer with incomplete or conflicting objects does not affect other peers.
func TestNodeWithABadPeer(t *testing.T) {
	alone, err := compileNode(newHost())
	require.NoError(t, err)
	for want, change := range map[string]func(*Peer){
		"waiting for a pod of the gateway":                func(p *Peer) { p.Server.Status.InternalEndpoint = nil },
		"ip \"here\" is not an IPv4 address":              func(p *Peer) { *p.Server.Status.InternalEndpoint.IP = "here" },
		"ip \"fd00::1\" is not an IPv4 address":           func(p *Peer) { *p.Server.Status.InternalEndpoint.IP = "fd00::1" },
		"waiting for the Configuration":                   func(p *Peer) { p.Configuration = nil },
		"spec.mtu 100 is less than":                       func(p *Peer) { p.Server.Spec.MTU = 100 },
		"the range 10.61.0.0/16 overlaps 10.61.0.0/16 of": func(*Peer) {},
		"delete one of them":                              func(p *Peer) { p.Client = newClient() },
	} {
		t.Run(want, func(t *testing.T) {
			h := newHost()
			bad := Peer{Configuration: newConfiguration(), Server: newServer()}
			change(&bad)
			h.Peers = append(h.Peers, bad)
			state, err := compileNode(h)
			require.ErrorContains(t, err, want)
			require.Equal(t, format(alone), format(state))
		})
	}
}

// TestOrderDoesNotMatter checks that a State does not depend on the order in which the API server lists the objects.
func TestOrderDoesNotMatter(t *testing.T) {
	h := newHost()
	second := Peer{Configuration: newConfiguration(), Server: newServer()}
	second.Configuration.Status.Remote.CIDR = networking.ClusterConfigCIDR{Pod: []networking.CIDR{"10.81.0.0/16"},
		External: []networking.CIDR{"10.82.0.0/16"}}
	h.Peers = append(h.Peers, second)
	first, err := compileNode(h)
	require.NoError(t, err)
	slices.Reverse(h.Peers)
	reversed, err := compileNode(h)
	require.NoError(t, err)
	require.Equal(t, format(first), format(reversed))
}

// TestNextHops checks that next hops are different, do not change when other names are added or removed, and are not
// special addresses.
func TestNextHops(t *testing.T) {
	var names []string
	for i := range 20_000 {
		names = append(names, fmt.Sprint("node-", i))
	}
	all, used := nextHops(names), map[netip.Addr]bool{}
	for _, a := range all {
		require.False(t, used[a])
		used[a] = true
		require.True(t, netip.MustParsePrefix("240.0.0.0/4").Contains(a) && a != netip.MustParseAddr("255.255.255.255"))
	}
	moved := 0
	for name, a := range nextHops(names[10_000:]) {
		if all[name] != a {
			moved++
		}
	}
	require.LessOrEqual(t, moved, 3, "only names with equal hashes move")
	require.NotEqual(t, gatewayMAC(types.UID("x")), nodeMAC("x"))
}

// TestIncompletePeerKeepsItsConfiguration checks that a peer whose objects become incomplete or malformed keeps its
// configuration, both in the same process and after a restart. Changes of other peers must still be applied.
func TestIncompletePeerKeepsItsConfiguration(t *testing.T) {
	for name, spoil := range map[string]func(*Peer){
		"no Configuration":  func(p *Peer) { p.Configuration = nil },
		"earlier spec":      func(p *Peer) { p.Configuration.Generation++ },
		"no pod":            func(p *Peer) { p.Client.Status.InternalEndpoint = nil },
		"wrong MTU":         func(p *Peer) { p.Client.Spec.MTU = 1 },
		"two gateways":      func(p *Peer) { p.Server = newServer() },
		"ambiguous":         func(p *Peer) { p.Problem = "two Configurations" },
		"too large a range": func(p *Peer) { p.Configuration.Spec.Remote.CIDR.Pod[0] = "0.0.0.0/0" },
	} {
		t.Run(name, func(t *testing.T) {
			compiler := NewNodeCompiler(netstate.State{})
			good, err := compiler.Compile(newHost())
			require.NoError(t, err)
			for restart, c := range map[string]*NodeCompiler{"same process": compiler, "restart": NewNodeCompiler(good)} {
				bad := newHost()
				spoil(&bad.Peers[0])
				for range 2 {
					kept, err := c.Compile(bad)
					var refusal *Refusal
					require.ErrorAs(t, err, &refusal, restart)
					require.True(t, refusal.Kept, restart)
					require.Equal(t, format(good), format(kept), restart)
				}
				second := newSecondPeer("10.81.0.0/16")
				bad.Peers = append(bad.Peers, second)
				both, err := c.Compile(bad)
				require.Error(t, err)
				require.Contains(t, format(both), "10.81.0.0/16")
				require.Contains(t, format(both), "10.61.0.0/16")
				bad.Peers = bad.Peers[1:]
				alone, err := c.Compile(bad)
				require.NoError(t, err)
				require.NotContains(t, format(alone), "10.61.0.0/16", "a peer without a gateway is gone")
			}
		})
	}
}

func newSecondPeer(pods networking.CIDR) Peer {
	p := Peer{Configuration: newConfiguration(), Server: newServer()}
	p.Configuration.Status.Remote.CIDR = networking.ClusterConfigCIDR{Pod: []networking.CIDR{pods}, External: []networking.CIDR{"10.82.0.0/16"}}
	return p
}

// TestNodeInARangeOfAPeer checks that a peer whose range contains the address of a node is refused, also if it was
// accepted before the node appeared, and is accepted again after the node is gone.
func TestNodeInARangeOfAPeer(t *testing.T) {
	c, h := NewNodeCompiler(netstate.State{}), newHost()
	before, err := c.Compile(h)
	require.NoError(t, err)
	later := h
	later.Nodes = append(slices.Clone(h.Nodes), netip.MustParseAddr("10.61.7.7"))
	refused, err := c.Compile(later)
	require.ErrorContains(t, err, "the range 10.61.0.0/16 contains the address 10.61.7.7 of a node")
	require.Empty(t, refused.Routes)
	broken := later
	broken.Peers = []Peer{{Configuration: &networking.Configuration{}, Client: newClient()}}
	refused, err = c.Compile(broken)
	require.Error(t, err)
	require.Empty(t, refused.Routes, "nothing is kept")
	after, err := c.Compile(h)
	require.NoError(t, err)
	require.Equal(t, format(before), format(after))
}

// TestConflictingPeers checks which of two peers with the same addresses is configured.
func TestConflictingPeers(t *testing.T) {
	c := NewNodeCompiler(netstate.State{})
	before, err := c.Compile(newHost())
	require.NoError(t, err)
	h := newHost()
	h.Peers = []Peer{newSecondPeer("10.61.0.0/16"), h.Peers[0]}
	after, err := c.Compile(h)
	require.ErrorContains(t, err, "GatewayServer liqo-tenant-milan/milan: the range 10.61.0.0/16 overlaps")
	require.Equal(t, format(before), format(after), "the first one keeps its addresses")

	h.Peers[1].Configuration = nil
	after, err = c.Compile(h)
	var refusal *Refusal
	require.ErrorAs(t, err, &refusal)
	require.Contains(t, format(after), "10.82.0.0/16", "the addresses were granted anew, because their Configuration is gone")
	require.NotContains(t, format(after), "10.62.0.0/16")
	second, err := compileNode(Host{Name: h.Name, IP: h.IP, External: h.External, Nodes: h.Nodes, MTU: h.MTU, Peers: h.Peers[:1]})
	require.NoError(t, err)
	require.Equal(t, format(second), format(after))

	// If another peer uses the new range of a known peer, the known peer keeps its old range.
	c = NewNodeCompiler(netstate.State{})
	h = newHost()
	h.Peers = append(h.Peers, newSecondPeer("10.81.0.0/16"))
	before, err = c.Compile(h)
	require.NoError(t, err)
	h.Peers[1] = newSecondPeer("10.61.0.0/16")
	after, err = c.Compile(h)
	require.ErrorAs(t, err, &refusal)
	require.True(t, refusal.Kept)
	require.Equal(t, format(before), format(after))
}

// TestResumeTunnel checks that a gateway whose Configuration is malformed resumes the tunnel of an earlier process from
// the kernel.
func TestResumeTunnel(t *testing.T) {
	good, err := CompileGateway(newPeering())
	require.NoError(t, err)
	p := newPeering()
	p.Configuration = nil
	resumed, err := ResumeTunnel(p, good.State)
	require.NoError(t, err)
	require.Equal(t, good.Tunnel, resumed.Tunnel)
	require.Equal(t, good.Ping, resumed.Ping)
	require.Zero(t, resumed.State)
	_, err = ResumeTunnel(p, netstate.State{})
	require.ErrorContains(t, err, "the kernel has no ranges of the peer")
	p.PublicKey = nil
	_, err = ResumeTunnel(p, good.State)
	require.ErrorContains(t, err, "waiting for the PublicKey")
}

// compileNode returns the configuration of a node that was not configured before.
func compileNode(h Host) (netstate.State, error) {
	return NewNodeCompiler(netstate.State{}).Compile(h)
}
