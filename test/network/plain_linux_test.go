// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/refract-project/refract/gateway"
	"github.com/refract-project/refract/gateway/netstate"
	"github.com/refract-project/refract/gateway/tunnel"
	"github.com/refract-project/refract/test/support/netlab"
)

// plainLink is the WireGuard link of a plain tunnel, with the same MTU as the tunnels of the other labs.
const plainLink, plainMTU = "wg0", 1340

// Addresses of the pods at the ends of a plain tunnel. Network plugins do not translate them.
const (
	plainRomeRange, plainMilanRange = "100.64.1.0/24", "100.64.2.0/24"
	plainRomeIP, plainMilanIP       = "100.64.1.10", "100.64.2.10"
)

// runPlainTunnel runs WireGuard and nothing else, with the configuration that is received first.
func runPlainTunnel(ctx context.Context, configs <-chan tunnel.Config, report func(gateway.Report)) error {
	device, err := tunnel.Open(tunnel.Options{Name: plainLink, MTU: plainMTU, Implementation: wireGuard()})
	if err != nil {
		return err
	}
	defer device.Close()
	writes, err := device.Apply(<-configs)
	report(gateway.Report{Network: &netstate.Outcome{Writes: writes, Err: err}})
	<-ctx.Done()
	return nil
}

// newPlainClusters creates the hosts and links of newClusters, with WireGuard between them, but without agents, VXLAN and translated
// addresses. The pods have further addresses, to which all hosts have routes.
func newPlainClusters(t *testing.T) (rome, milan *cluster) {
	t.Helper()
	rome, milan = newCluster(t, "rome"), newCluster(t, "milan")
	netlab.Cable(rome.gatewayNode, "internet", internetRome+"/24", milan.gatewayNode, "internet", internetMil+"/24")
	forwardPort(t, milan.gatewayNode, tunnelPort, gatewayIP)
	for _, c := range []*cluster{rome, milan} {
		key, err := wgtypes.GeneratePrivateKey()
		require.NoError(t, err)
		c.key = key
	}
	server := tunnel.Config{PrivateKey: milan.key, ListenPort: tunnelPort, Peers: []tunnel.Peer{{PublicKey: rome.key.PublicKey(),
		AllowedIPs: []netip.Prefix{netip.MustParsePrefix(plainRomeRange)}}}}
	peer := tunnel.Config{PrivateKey: rome.key, Peers: []tunnel.Peer{{PublicKey: milan.key.PublicKey(),
		Endpoint:   netip.AddrPortFrom(netip.MustParseAddr(internetMil), tunnelPort),
		AllowedIPs: []netip.Prefix{netip.MustParsePrefix(plainMilanRange)}}}}
	milan.startPlain(t, server, plainMilanIP, plainMilanRange)
	rome.startPlain(t, peer, plainRomeIP, plainRomeRange)
	return rome, milan
}

// startPlain adds the address pod of the range own, and the routes to the peer, and starts this end of the tunnel.
func (c *cluster) startPlain(t *testing.T, config tunnel.Config, pod, own string) {
	t.Helper()
	remote := config.Peers[0].AllowedIPs[0].String()
	c.pod.Address("eth0", pod+"/32")
	c.node.Route(own, "", "pod")
	c.node.Route(remote, gatewayNodeIP, "eth0")
	c.gatewayNode.Route(own, nodeIP, "eth0")
	c.gatewayNode.Route(remote, gatewayIP, "gateway")
	c.gate.Sysctl("net/ipv4/ip_forward", "1")
	c.gateway = start(t, c.gate, "plain")
	require.Equal(t, 1, c.gateway.apply(config))
	c.gate.Address(plainLink, "")
	c.gate.Route(remote, "", plainLink)
}
