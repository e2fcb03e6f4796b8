// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/gateway/netstate"
	"github.com/refract-project/refract/test/support/netlab"
)

// TestPodsOfEqualClusters connects the pods of two clusters with the same addresses, including the addresses of the
// pods.
func TestPodsOfEqualClusters(t *testing.T) {
	netlab.Need(t)
	rome, milan := newClusters(t)
	for _, pod := range []*netlab.Host{rome.pod, milan.pod} {
		listen(t, pod)
	}
	toMilan, source := dial(t, rome.pod, "10.61.1.10:8080")
	require.Equal(t, "10.71.1.10", source)
	toRome, source := dial(t, milan.pod, "10.71.1.10:8080")
	require.Equal(t, "10.61.1.10", source)
	exchange(t, toMilan)
	exchange(t, toRome)
	_, source = dial(t, rome.node, "10.61.1.10:8080")
	require.Equal(t, "10.72.0.5", source, "a process of a node has the node's address in the external range")

	t.Run("VXLAN is not tracked", func(t *testing.T) {
		// Connections of pods to the same port are tracked, because their addresses are translated.
		startEchoesAt(t, rome.pod, milan.pod, netip.AddrPortFrom(netip.MustParseAddr("10.61.1.10"), desired.VXLANPort)).await(t)
		for name, host := range map[string]*netlab.Host{"rome": rome.gate, "milan": milan.gate} {
			var flows []*netlink.ConntrackFlow
			require.NoError(t, host.Do(func() (err error) {
				flows, err = netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
				return err
			}))
			for _, f := range flows {
				isInside := f.Forward.SrcIP.String() == podIP || f.Reverse.SrcIP.String() == podIP
				require.False(t, f.Forward.DstPort == desired.VXLANPort && !isInside, "%s: %s", name, f)
			}
		}
	})
	t.Run("rules deleted by somebody else", func(t *testing.T) {
		for host, p := range map[*netlab.Host]*process{rome.gate: rome.gateway, milan.node: milan.agents[0]} {
			inNFTables(t, host, func(c *nftables.Conn) {
				c.DelTable(&nftables.Table{Name: desired.TableName, Family: nftables.TableFamilyIPv4})
			})
			require.Equal(t, 1, p.awaitRepair())
			exchange(t, toMilan)
			exchange(t, toRome)
		}
	})
	t.Run("gateway killed", func(t *testing.T) {
		for _, c := range []*cluster{rome, milan} {
			c.gateway.kill()
			c.gateway = c.gateway.restart()
			require.Zero(t, c.gateway.apply(c.peering))
			t.Logf("gateway of %s: both connections went on after %s", c.name, exchange(t, toMilan)+exchange(t, toRome))
		}
	})
	t.Run("agent killed", func(t *testing.T) {
		rome.agents[0].kill()
		exchange(t, toMilan)
		rome.agents[0] = rome.agents[0].restart()
		require.Zero(t, rome.agents[0].apply(rome.hosts[0]))
		exchange(t, toRome)
	})
	t.Run("last peer removed, and added again", func(t *testing.T) {
		alone := rome.hosts[0]
		alone.Peers = nil
		require.Positive(t, rome.agents[0].apply(alone))
		require.Equal(t, state{}, dump(t, rome.node))
		require.Positive(t, rome.agents[0].apply(rome.hosts[0]))
		exchange(t, toMilan)
		exchange(t, toRome)
	})
	t.Run("addresses of a node in the pod range", func(t *testing.T) {
		// Network plugins give the bridge of a node the first address of its range.
		rome.node.Address("pod", "10.1.1.1/32")
		listen(t, rome.node)
		forwardService(t, rome.node, "10.1.1.1", podIP) // a Service with a node port
		for _, address := range []string{"10.71.1.1:8080", "10.72.0.5:8080"} {
			require.False(t, connects(milan.pod, address), address)
		}
		counts := droppedBy(t, rome.node, "arrival")
		require.Positive(t, counts["to the node itself, from a peer"])
		require.Positive(t, counts["to the address by which peers see the node"])
		_, source := dial(t, rome.node, "10.61.1.10:8080")
		require.Equal(t, "10.72.0.5", source, "answers to the node arrive")
	})
	t.Run("peer that claims addresses of this cluster", func(t *testing.T) {
		listen(t, rome.node)
		listen(t, rome.gate)
		// According to this Configuration, the range of rome's nodes is a pod range. Milan's own gateway and nodes then
		// send such packets.
		invented := configuration("rome", romeInMilan)
		invented.Spec.Remote.CIDR.Pod = append(invented.Spec.Remote.CIDR.Pod, "192.168.0.0/24")
		invented.Status.Remote.CIDR.Pod = append(invented.Status.Remote.CIDR.Pod, "10.73.0.0/24")
		milan.use(invented)
		for address, c := range map[string]struct {
			from   *netlab.Host
			reason string
		}{
			"10.73.0.1:8080":    {milan.pod, "destination outside of this cluster's ranges"}, // address of a node in rome
			"169.254.18.2:8080": {milan.gate, "to the gateway itself, from the peer"},
		} {
			before := dropped(t, rome.gate)[c.reason]
			// The first packets may arrive before WireGuard in milan knows the range.
			for attempt := 0; dropped(t, rome.gate)[c.reason] == before; attempt++ {
				require.Less(t, attempt, 20, "%s is not counted as: %s", address, c.reason)
				require.False(t, connects(c.from, address), address)
			}
		}
		// Milan uses another range as well. WireGuard in rome's gateway must refuse packets from it.
		invented.Spec.Local.CIDR.Pod = append(invented.Spec.Local.CIDR.Pod, "10.9.0.0/16")
		milan.use(invented)
		milan.pod.Address("eth0", "10.9.0.1/32")
		milan.node.Route("10.9.0.1/32", "", "pod")
		require.False(t, connectsFrom(milan.pod, "10.9.0.1", "10.71.1.10:8080"))
		require.True(t, connectsFrom(milan.pod, podIP, "10.71.1.10:8080"))
		exchange(t, toMilan)
	})
}

// BenchmarkApply compares and changes the configuration of a node with 200 peers, each with four ranges.
func BenchmarkApply(b *testing.B) {
	applyPeers(b, func(compare, move func() int) {
		b.Run("nothing changed", func(b *testing.B) {
			for b.Loop() {
				require.Zero(b, compare())
			}
		})
		b.Run("one gateway moved", func(b *testing.B) {
			for b.Loop() {
				require.Equal(b, movedWrites, move())
			}
		})
	})
}

// movedWrites is the number of writes when a gateway has moved: the forwarding database, the set of known hosts, and the neighbour and
// the route for requests, whose address changes.
const movedWrites = 6

// applyPeers applies 200 peers, each with four ranges, to a node. It then calls use with a function that applies them again, and one that
// applies them with another address of the first gateway. Both return the number of writes.
func applyPeers(tb testing.TB, use func(compare, move func() int)) {
	tb.Helper()
	host := netlab.NewHost(tb, "node")
	h := desired.Host{Name: "node", IP: netip.MustParseAddr(nodeIP), MTU: 1500, External: netip.MustParseAddr(nodeExternal)}
	for i := range 200 {
		p := desired.Peer{Configuration: configuration(fmt.Sprint(i), milanInRome), Client: &networking.GatewayClient{}}
		ranges := networking.ClusterConfigCIDR{}
		for j := range 4 {
			ranges.Pod = append(ranges.Pod, networking.CIDR(fmt.Sprintf("100.%d.%d.0/24", 64+j, i)))
		}
		p.Configuration.Spec.Remote.CIDR, p.Configuration.Status.Remote.CIDR = ranges, ranges
		ip := networking.IP(fmt.Sprintf("10.1.3.%d", i+1))
		p.Client.UID, p.Client.Spec.MTU = types.UID(fmt.Sprint(i)), 1340
		p.Client.Status.InternalEndpoint = &networking.InternalGatewayEndpoint{IP: &ip}
		h.Peers = append(h.Peers, p)
	}
	require.NoError(tb, host.Do(func() error {
		applier, err := netstate.NewApplier(desired.NodeScope)
		require.NoError(tb, err)
		defer applier.Close()
		compiler := desired.NewNodeCompiler(netstate.State{})
		apply := func() int {
			state, err := compiler.Compile(h)
			require.NoError(tb, err)
			writes, err := applier.Apply(state)
			require.NoError(tb, err)
			return writes
		}
		begun := time.Now()
		tb.Logf("%d writes at first, in %s", apply(), time.Since(begun))
		moves := 0
		use(apply, func() int {
			ip := networking.IP(fmt.Sprintf("10.1.4.%d", moves%200+1))
			h.Peers[0].Client.Status.InternalEndpoint.IP = &ip
			moves++
			return apply()
		})
		return nil
	}))
}
