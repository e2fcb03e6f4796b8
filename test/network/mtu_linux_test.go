// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/test/support/netlab"
)

// largeMTU is the MTU of all links in TestPathMTU, and largeTunnelMTU the configured MTU of the tunnel.
const largeMTU, largeTunnelMTU = 9000, 8840

// TestPathMTU drops long packets between two gateways without an ICMP error, as routers do whose errors are filtered. TCP must pass for each size that
// the path carries, also on a connection that was opened before.
func TestPathMTU(t *testing.T) {
	netlab.Need(t)
	rome, milan := newClustersWith(t, useLargePackets)
	listen(t, milan.pod)
	old, _ := dial(t, rome.pod, "10.61.1.10:8080")
	sends := func(p *process, size int) {
		t.Helper()
		p.awaitEvent(func(e event) bool { return e.PathMTU != nil && e.PathMTU.Path == size })
	}
	sends(rome.gateway, largeTunnelMTU)
	sends(milan.gateway, largeTunnelMTU)
	for _, c := range []struct{ underlay, want int }{
		{1500, 1440}, // WireGuard pads packets to a multiple of 16 bytes, and adds 60 bytes of headers
		{1280, 1216},
		{1400, 1328},
		{largeMTU, largeTunnelMTU},
	} {
		for _, cluster := range []*cluster{rome, milan} {
			narrow(t, cluster.gatewayNode, c.underlay)
		}
		milan.gateway.kill()
		milan.gateway = milan.gateway.restart()
		begun := time.Now()
		require.Zero(t, milan.gateway.apply(milan.peering), "the limit of the earlier process remains")
		sends(rome.gateway, c.want)
		sends(milan.gateway, c.want)
		t.Logf("underlay %d: packets of %d bytes after %s", c.underlay, c.want, time.Since(begun).Round(time.Millisecond))
		await(t, func() error { return expect(tunnelRouteMTU(t, rome.gate), c.want%largeTunnelMTU) })
		await(t, func() error { return expect(tunnelRouteMTU(t, milan.gate), c.want%largeTunnelMTU) })
		young, _ := dial(t, rome.pod, "10.61.1.10:8080")
		t.Logf("a new connection needs %s, an old one %s", exchange(t, young), exchange(t, old))
		_ = young.Close()
	}
}

// useLargePackets raises the MTU of all links and of the tunnel.
func useLargePackets(c *cluster) {
	for host, links := range map[*netlab.Host][]string{
		c.pod: {"eth0"}, c.node: {"pod", "eth0"}, c.gatewayNode: {"eth0", "gateway", "internet"}, c.gate: {"eth0"},
	} {
		for _, name := range links {
			host.SetMTU(name, largeMTU)
		}
	}
	c.peering.PodMTU = largeMTU
	if c.peering.Client != nil {
		c.peering.Client.Spec.MTU = largeTunnelMTU
	} else {
		c.peering.Server.Spec.MTU = largeTunnelMTU
	}
	for i := range c.hosts {
		c.hosts[i].MTU = largeMTU
	}
}

// narrow sets the MTU of a node's link to the internet. Longer packets are lost there: the node sends no ICMP errors, and drops fragments, which it would get
// of the packets of WireGuard in the kernel.
func narrow(t *testing.T, node *netlab.Host, mtu int) {
	t.Helper()
	node.SetMTU("internet", mtu)
	inNFTables(t, node, func(c *nftables.Conn) {
		const beforeDefragmentation = -450
		table := c.AddTable(&nftables.Table{Name: "path", Family: nftables.TableFamilyIPv4})
		c.DelTable(table)
		c.AddTable(table)
		drop := func(hook *nftables.ChainHook, priority nftables.ChainPriority, match ...expr.Any) {
			chain := c.AddChain(&nftables.Chain{Name: fmt.Sprint("drop", *hook), Table: table, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: &priority})
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(match, &expr.Verdict{Kind: expr.VerdictDrop})})
		}
		drop(nftables.ChainHookOutput, 0, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Register: 1, Data: []byte{unix.IPPROTO_ICMP}})
		drop(nftables.ChainHookPrerouting, beforeDefragmentation,
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 6, Len: 2},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 2, Mask: []byte{0x3f, 0xff}, Xor: make([]byte, 2)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 2)})
	})
}

// tunnelRouteMTU returns the MTU of the routes to the peer, 0 if they have none.
func tunnelRouteMTU(t *testing.T, gate *netlab.Host) int {
	t.Helper()
	found := -1
	for _, r := range routesOf(t, gate, desired.GatewayScope.RouteTables[0]) {
		if r.Gw == nil {
			continue
		}
		require.True(t, found < 0 || found == r.MTU, "routes of different MTUs")
		found = r.MTU
	}
	return found
}
