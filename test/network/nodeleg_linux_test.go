// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/stretchr/testify/require"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/test/support/netlab"
)

const endsMetric, missingEndsMetric = "refract_gateway_vxlan_ends", "refract_gateway_vxlan_missing_ends"

// requestComment is the comment of the rules that let the requests of nodes through.
const requestComment = "request of a node"

// TestNodeLeg blocks VXLAN between a node and the gateway in one direction, and sends requests that no node has sent.
func TestNodeLeg(t *testing.T) {
	netlab.Need(t)
	rome, milan := newClusters(t)
	missing := func(p *process, names ...string) {
		t.Helper()
		p.awaitEvent(func(e event) bool { return e.Leg != nil && slices.Equal(e.Leg.Missing, names) })
	}
	await(t, func() error { return expect(dropped(t, rome.gate)[requestComment] >= 12, true) }) // three for each node and chain
	for name, c := range map[string]struct {
		at   *netlab.Host
		hook *nftables.ChainHook
		node int
		want string
	}{
		"answers of the gateway are blocked": {rome.node, nftables.ChainHookInput, 0, "node"},
		"requests of the node are blocked":   {rome.gatewayNode, nftables.ChainHookOutput, 1, "gateway-node"},
	} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			dropAt(t, c.at, c.hook, desired.VXLANPort)
			missing(rome.gateway, c.want)
			t.Logf("reported after %s", time.Since(begun).Round(time.Millisecond))
			missing(rome.agents[c.node], "GatewayClient liqo-tenant/peer")
			allowPorts(t, c.at)
			missing(rome.gateway)
			missing(rome.agents[c.node])
		})
	}
	t.Run("forged requests", func(t *testing.T) {
		request := append([]byte{1, 1}, make([]byte, 16)...)
		answered := func(from *netlab.Host, address string) bool {
			return from.Do(func() error {
				connection, err := net.Dial("udp4", net.JoinHostPort(address, strconv.Itoa(desired.EchoPort)))
				if err != nil {
					return err
				}
				defer connection.Close()
				if _, err := connection.Write(request); err != nil {
					return err
				}
				if err := connection.SetReadDeadline(time.Now().Add(refusalTimeout)); err != nil {
					return err
				}
				_, err = connection.Read(make([]byte, 100))
				return err
			}) == nil
		}
		require.False(t, answered(rome.pod, gatewayIP))
		for _, node := range []*netlab.Host{rome.node, rome.gatewayNode} {
			inNFTables(t, node, func(c *nftables.Conn) { c.DelTable(&nftables.Table{Name: "cni", Family: nftables.TableFamilyIPv4}) })
		}
		require.False(t, answered(rome.node, gatewayIP), "from the address of a node, but not through VXLAN")
		const reason = "to the gateway itself, from the peer"
		before := dropped(t, rome.gate)[reason]
		require.False(t, answered(milan.gate, "169.254.18.2"), "through the tunnel")
		require.Greater(t, dropped(t, rome.gate)[reason], before)
	})
}

// checkNodeLeg checks the metrics, the Events and the Connection of a gateway while VXLAN is blocked between it and one of its two nodes,
// and then between it and both.
func checkNodeLeg(t *testing.T, s *site) {
	t.Helper()
	await(t, func() error { return expect(s.run.metric(endsMetric), 2.0) })
	require.Equal(t, 1.0, s.nodeAgents[0].metric(endsMetric))
	require.Zero(t, s.run.metric(missingEndsMetric))
	// A node is missing after 5 s, but only after 30 s if this process has not heard it before.
	before := dropped(t, s.gate)[requestComment]
	await(t, func() error { return expect(dropped(t, s.gate)[requestComment] >= before+12, true) })
	blockPort(t, s.gatewayNode, desired.VXLANPort)
	await(t, func() error {
		return s.hasEvent("1 of 2 nodes do not reach this gateway, so their pods do not reach the peer: node. ")
	})
	require.Equal(t, 1.0, s.run.metric(missingEndsMetric))
	require.Equal(t, 1.0, s.run.metric("refract_gateway_connected"))
	s.awaitConnection(t, networking.Connected) // the other node has its connection
	await(t, func() error { return expect(s.nodeAgents[0].metric(missingEndsMetric), 1.0) })
	require.Zero(t, s.nodeAgents[1].metric(missingEndsMetric))
	allowPorts(t, s.gatewayNode)
	await(t, func() error { return s.hasEvent("all nodes reach this gateway again (2)") })
	require.Zero(t, s.run.metric(missingEndsMetric))
	await(t, func() error { return expect(s.nodeAgents[0].metric(missingEndsMetric), 0.0) })

	dropAt(t, s.gate, nftables.ChainHookInput, desired.VXLANPort)
	s.awaitConnection(t, networking.ConnectionFailed)
	require.Equal(t, 2.0, s.run.metric(missingEndsMetric))
	require.Equal(t, 1.0, s.run.metric("refract_gateway_connected"), "the peer answers all the same")
	allowPorts(t, s.gate)
	s.awaitConnection(t, networking.Connected)
	require.Less(t, s.run.metric(missingEndsMetric), 2.0)
	await(t, func() error { return expect(s.run.metric(missingEndsMetric), 0.0) })
}
