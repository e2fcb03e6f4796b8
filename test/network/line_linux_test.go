// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/refract-project/refract/test/support/netlab"
)

const (
	movedRome, movedMilan = "203.0.113.3", "203.0.113.4"
	// lineDeadline is how long a TCP connection may stand still after the line between the clusters has changed. TCP
	// itself waits for some seconds before it sends again.
	lineDeadline = 20 * time.Second
)

// setUp switches a link on or off.
func setUp(t *testing.T, host *netlab.Host, name string, isUp bool) {
	t.Helper()
	link, err := host.Links().LinkByName(name)
	require.NoError(t, err)
	if isUp {
		require.NoError(t, host.Links().LinkSetUp(link))
	} else {
		require.NoError(t, host.Links().LinkSetDown(link))
	}
}

// replaceAddress replaces the address of the link to the internet.
func replaceAddress(t *testing.T, host *netlab.Host, before, after string) {
	t.Helper()
	link, err := host.Links().LinkByName("internet")
	require.NoError(t, err)
	address := func(text string) *netlink.Addr {
		return &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(text), Mask: net.CIDRMask(24, 32)}}
	}
	require.NoError(t, host.Links().AddrDel(link, address(before)))
	require.NoError(t, host.Links().AddrAdd(link, address(after)))
}

// forgetNeighbours deletes the hardware addresses that a host has learned on the link to the internet.
func forgetNeighbours(t *testing.T, host *netlab.Host) {
	t.Helper()
	link, err := host.Links().LinkByName("internet")
	require.NoError(t, err)
	neighbours, err := host.Links().NeighList(link.Attrs().Index, unix.AF_INET)
	require.NoError(t, err)
	for i := range neighbours {
		require.NoError(t, host.Links().NeighDel(&neighbours[i]))
	}
}

// dropArriving drops all packets that arrive from the internet, until mend is called.
func dropArriving(t *testing.T, host *netlab.Host) (mend func()) {
	t.Helper()
	table := &nftables.Table{Name: "line", Family: nftables.TableFamilyIPv4}
	inNFTables(t, host, func(c *nftables.Conn) {
		c.AddTable(table)
		chain := c.AddChain(&nftables.Chain{Name: "prerouting", Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRaw})
		name := make([]byte, unix.IFNAMSIZ)
		copy(name, "internet")
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Cmp{Register: 1, Data: name},
			&expr.Verdict{Kind: expr.VerdictDrop},
		}})
	})
	return func() { inNFTables(t, host, func(c *nftables.Conn) { c.DelTable(table) }) }
}

// awaitConnected waits until a gateway reports whether the peer answers.
func (p *process) awaitConnected(isConnected bool) {
	p.t.Helper()
	p.awaitEvent(func(e event) bool { return e.Connected != nil && *e.Connected == isConnected })
}

// TestLine changes the line between two clusters while a TCP connection is open in each direction. The connections
// must go on, and both gateways must report that the peer does not answer, and then that it does.
func TestLine(t *testing.T) {
	netlab.Need(t)
	rome, milan := newClusters(t)
	listen(t, rome.pod)
	listen(t, milan.pod)
	toMilan, _ := dial(t, rome.pod, "10.61.1.10:8080")
	toRome, _ := dial(t, milan.pod, "10.71.1.10:8080")
	for _, c := range []*cluster{rome, milan} {
		c.gateway.awaitConnected(true)
	}
	goOn := func(t *testing.T) {
		t.Helper()
		for _, connection := range []net.Conn{toMilan, toRome} {
			require.NoError(t, connection.SetDeadline(time.Now().Add(lineDeadline)))
		}
		t.Logf("both connections went on after %s", exchange(t, toMilan)+exchange(t, toRome))
	}
	t.Run("flapping", func(t *testing.T) {
		for range 3 {
			setUp(t, milan.gatewayNode, "internet", false)
			rome.gateway.awaitConnected(false)
			milan.gateway.awaitConnected(false)
			setUp(t, milan.gatewayNode, "internet", true)
			rome.gateway.awaitConnected(true)
			milan.gateway.awaitConnected(true)
		}
		goOn(t)
	})
	for name, c := range map[string]*cluster{"packets to the client are lost": rome, "packets to the server are lost": milan} {
		t.Run(name, func(t *testing.T) {
			mend := dropArriving(t, c.gatewayNode)
			rome.gateway.awaitConnected(false)
			milan.gateway.awaitConnected(false)
			mend()
			rome.gateway.awaitConnected(true)
			milan.gateway.awaitConnected(true)
			goOn(t)
		})
	}
	t.Run("the client has another address", func(t *testing.T) {
		replaceAddress(t, rome.gatewayNode, internetRome, movedRome)
		forgetNeighbours(t, milan.gatewayNode)
		goOn(t)
	})
	t.Run("the server has another address", func(t *testing.T) {
		replaceAddress(t, milan.gatewayNode, internetMil, movedMilan)
		forgetNeighbours(t, rome.gatewayNode)
		changed := time.Now()
		rome.gateway.awaitConnected(false)
		t.Logf("down after %s", time.Since(changed))
		rome.peering.Endpoint = netip.AddrPortFrom(netip.MustParseAddr(movedMilan), tunnelPort)
		rome.gateway.apply(rome.peering)
		begun := time.Now()
		rome.gateway.awaitConnected(true)
		t.Logf("up after %s", time.Since(begun))
		goOn(t)
	})
}
