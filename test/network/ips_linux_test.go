// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/test/support/netlab"
)

const (
	// otherGatewayIP is the address of the hub's gateway for its second peer.
	otherGatewayIP             = "10.1.2.6"
	gatewayNodeExternal        = "10.70.0.6"
	internetHub, internetTurin = "203.0.114.1", "203.0.114.2"
	databaseIP                 = "198.51.100.5"
	serviceIP                  = "10.96.0.10"
)

var turinInRome = seen{"10.63.0.0/16", "10.64.0.0/16"}

// mapping returns the content of an IP.
func mapping(granted, target string, masquerade bool) desired.Mapping {
	return desired.Mapping{Granted: netip.MustParseAddr(granted), Target: netip.MustParseAddr(target), Masquerade: masquerade}
}

// addPeer connects a hub, which has a peer already, to a second peer with the same ranges.
func addPeer(t *testing.T, hub, peer *cluster) {
	t.Helper()
	second := &cluster{name: hub.name, gate: netlab.NewHost(t, hub.name+"-gateway-2")}
	netlab.Cable(hub.gatewayNode, "gateway-2", hop+"/32", second.gate, "eth0", otherGatewayIP+"/32")
	hub.gatewayNode.Route(otherGatewayIP+"/32", "", "gateway-2")
	second.gate.Route("0.0.0.0/0", hop, "eth0")
	netlab.Cable(hub.gatewayNode, "internet-2", internetHub+"/24", peer.gatewayNode, "internet", internetTurin+"/24")
	forwardPort(t, peer.gatewayNode, tunnelPort, gatewayIP)
	describePeerings(second, peer)
	ip := networking.IP(otherGatewayIP)
	second.peering.Client.UID, second.peering.Client.Status.InternalEndpoint.IP = "uid-2", &ip
	peerIP := networking.IP(gatewayIP)
	peer.peering.Server.Status.InternalEndpoint = &networking.InternalGatewayEndpoint{IP: &peerIP}
	peer.hosts[0].Peers[0].Server, peer.hosts[1].Peers[0].Server = peer.peering.Server, peer.peering.Server
	second.peering.PodIP, second.peering.Endpoint = netip.MustParseAddr(otherGatewayIP), netip.AddrPortFrom(netip.MustParseAddr(internetTurin), tunnelPort)
	second.peering.Configuration = configuration(peer.name, turinInRome)
	second.peering.Nodes, second.peering.Node, second.peering.Mappings = hub.peering.Nodes, hub.peering.Node, hub.peering.Mappings
	peer.start(t)
	for i, agent := range hub.agents {
		hub.hosts[i].Peers = append(hub.hosts[i].Peers, desired.Peer{Configuration: second.peering.Configuration, Client: second.peering.Client})
		agent.apply(hub.hosts[i])
	}
	start(t, second.gate, "gateway").apply(second.peering)
}

// forwardService does the work of kube-proxy for a Service: it sends its connections to an endpoint.
func forwardService(t *testing.T, node *netlab.Host, service, endpoint string) {
	t.Helper()
	inNFTables(t, node, func(c *nftables.Conn) {
		table := c.AddTable(&nftables.Table{Name: "services", Family: nftables.TableFamilyIPv4})
		chain := c.AddChain(&nftables.Chain{Name: "prerouting", Table: table, Type: nftables.ChainTypeNAT,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4},
			&expr.Cmp{Register: 1, Data: netip.MustParseAddr(service).AsSlice()},
			&expr.Immediate{Register: 1, Data: netip.MustParseAddr(endpoint).AsSlice()},
			&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(8080)},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2, Specified: true},
		}})
	})
}

// TestPodWithTheAddressOfAGateway checks that a pod of the peer is reached, and reaches the pods of this cluster, if it
// has an address of the gateway. This is likely in clusters with equal ranges, because they grant the same addresses
// first.
func TestPodWithTheAddressOfAGateway(t *testing.T) {
	netlab.Need(t)
	const address = "10.1.1.77"
	rome, milan := newClusters(t)
	rome.gate.Address("eth0", address+"/32")
	milan.pod.Address("eth0", address+"/32")
	milan.node.Route(address+"/32", "", "pod")
	listen(t, rome.pod)
	listen(t, rome.gate)
	listen(t, milan.pod)
	connection, source := dial(t, rome.pod, "10.61.1.77:8080")
	require.Equal(t, "10.71.1.10", source)
	exchange(t, connection)
	connection, source = dialFrom(t, milan.pod, address, "10.71.1.10:8080")
	require.Equal(t, "10.61.1.77", source)
	exchange(t, connection)

	// The refusal of the command gateway names this drop and the values that end it.
	for _, c := range []struct {
		filter string
		passes bool
	}{{"1", false}, {"2", true}, {"1", false}, {"0", true}} {
		rome.gate.Sysctl(reversePathFilter, c.filter)
		require.Equal(t, c.passes, connects(rome.pod, "10.61.1.77:8080"), c.filter)
		require.Equal(t, c.passes, connectsFrom(milan.pod, address, "10.71.1.10:8080"), c.filter)
		require.True(t, connectsFrom(milan.pod, podIP, "10.71.1.10:8080"), c.filter)
	}
}

// TestPodOutsideOfTheRangesOfNodes checks that a peer reaches a pod whose address is not in spec.podCIDRs of its node, but
// in those of another one, as with network plugins that have their own IPAM.
func TestPodOutsideOfTheRangesOfNodes(t *testing.T) {
	netlab.Need(t)
	const address = "10.1.2.77" // in the range of the gateway's node
	rome, milan := newClustersWith(t, func(c *cluster) {
		if c.name == "rome" {
			c.peering.Nodes[0].Pods = []netip.Addr{netip.MustParseAddr(address)}
		}
	})
	rome.pod.Address("eth0", address+"/32")
	rome.node.Route(address+"/32", "", "pod")
	listen(t, rome.pod)
	connection, source := dial(t, milan.pod, "10.71.2.77:8080")
	require.Equal(t, "10.61.1.10", source)
	exchange(t, connection)
}

// TestIPs checks what a peer reaches through the IPs of a hub: a pod of another peer, hosts outside of the cluster, and
// a Service. All three clusters have the same ranges.
func TestIPs(t *testing.T) {
	netlab.Need(t)
	mappings := []desired.Mapping{
		mapping("10.70.1.1", "10.63.1.10", false), // the pod of turin
		mapping("10.70.1.2", databaseIP, true),
		mapping("10.70.1.3", "198.51.100.6", false),
		mapping("10.70.1.4", serviceIP, false),
		mapping("10.70.1.5", podIP, false),
		mapping("10.71.1.1", databaseIP, true), // the address is in a range of a peer
	}
	rome, milan := newClustersWith(t, func(c *cluster) {
		c.peering.Node = "gateway-node"
		c.peering.Nodes[1].External = netip.MustParseAddr(gatewayNodeExternal)
		c.hosts[1].External = c.peering.Nodes[1].External
		if c.name == "rome" {
			c.peering.Mappings = mappings
			for i := range c.hosts {
				c.hosts[i].Masqueraded = []netip.Addr{netip.MustParseAddr(databaseIP)}
			}
		}
	})
	turin := newCluster(t, "turin")
	addPeer(t, rome, turin)
	database := netlab.NewHost(t, "database")
	netlab.Cable(rome.gatewayNode, "outside", "198.51.100.1/24", database, "eth0", databaseIP+"/24")
	database.Address("eth0", "198.51.100.6/24")
	for _, peer := range []seen{milanInRome, turinInRome} {
		database.Route(peer.pods, "198.51.100.1", "eth0")
	}
	forwardService(t, rome.gatewayNode, serviceIP, nodeIP)
	for _, host := range []*netlab.Host{rome.pod, rome.node, turin.pod, milan.pod, database} {
		listen(t, host)
	}
	for _, c := range []struct{ name, address, source string }{
		{"a pod of another peer", "10.72.1.1:8080", "10.72.0.6"},
		{"a host without a route to the peer", "10.72.1.2:8080", "198.51.100.1"},
		{"a host with a route to the peer", "10.72.1.3:8080", "10.61.1.10"},
		{"a Service", "10.72.1.4:8080", gatewayNodeIP},
		{"a pod of the hub", "10.72.1.5:8080", "10.61.1.10"},
	} {
		t.Run(c.name, func(t *testing.T) {
			connection, source := dial(t, milan.pod, c.address)
			require.Equal(t, c.source, source)
			exchange(t, connection)
		})
	}
	t.Run("the same IP by the second peer", func(t *testing.T) {
		_, source := dial(t, turin.pod, "10.72.1.3:8080")
		require.Equal(t, "10.63.1.10", source)
	})
	t.Run("addresses without an IP", func(t *testing.T) {
		require.False(t, connects(milan.pod, "10.72.1.9:8080"))
		require.False(t, connects(milan.pod, "10.72.1.0:8080"))
	})
	t.Run("an IP that is deleted", func(t *testing.T) {
		require.True(t, connects(milan.pod, "10.72.1.2:8080"))
		rome.peering.Mappings = mappings[2:]
		require.Positive(t, rome.gateway.apply(rome.peering))
		require.False(t, connects(milan.pod, "10.72.1.2:8080"))
		require.True(t, connects(milan.pod, "10.72.1.3:8080"))
	})
	t.Run("a restart changes nothing", func(t *testing.T) {
		rome.gateway.kill()
		rome.gateway = rome.gateway.restart()
		require.Zero(t, rome.gateway.apply(rome.peering))
		dial(t, milan.pod, "10.72.1.3:8080")
	})
}
