// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"sigs.k8s.io/controller-runtime/pkg/client"

	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/test/support/netlab"
)

// `make chaos-network` sets these environment variables: the number of rounds, and what they are drawn from.
const chaosRoundsVariable, chaosSeedVariable = "REFRACT_NETWORK_ROUNDS", "REFRACT_NETWORK_SEED"

// TestNetworkChaos breaks two clusters with gateways of two pods each in a random order. After each step, pods must reach each other
// in both directions, one pod of each gateway must be active, TCP connections that were opened before the first step must go on
// without a lost byte, and what the rules forbid must not pass.
func TestNetworkChaos(t *testing.T) {
	netlab.Need(t)
	number := func(name string, value uint64) uint64 {
		if text := os.Getenv(name); text != "" {
			var err error
			value, err = strconv.ParseUint(text, 10, 64)
			require.NoError(t, err)
		}
		return value
	}
	seed := number(chaosSeedVariable, uint64(time.Now().UnixNano()))
	t.Logf("%s=%d", chaosSeedVariable, seed)
	c := newNetworkChaos(t, rand.New(rand.NewPCG(seed, 0))) //nolint:gosec // it must be repeatable
	c.check("start")
	for range number(chaosRoundsVariable, 1) {
		c.playRound()
	}
}

// networkChaos is the state of TestNetworkChaos.
type networkChaos struct {
	t           *testing.T
	random      *rand.Rand
	rome, milan *site
	pods        map[*site]*gatewayPods
	flows       map[*site]*echoes // by the site of the client
	addresses   map[*site][2]string
}

func newNetworkChaos(t *testing.T, random *rand.Rand) *networkChaos {
	c := &networkChaos{t: t, random: random}
	c.rome, c.milan, c.pods = newElectingSites(t)
	c.addresses = map[*site][2]string{c.rome: {internetRome, movedRome}, c.milan: {internetMil, movedMilan}}
	c.flows = map[*site]*echoes{}
	for _, s := range []*site{c.rome, c.milan} {
		for _, host := range []*netlab.Host{s.pod, s.node, c.pods[s].commands[0].host, c.pods[s].commands[1].host} {
			listen(t, host)
		}
	}
	for from, target := range c.targets() {
		connection, _ := dialRetrying(t, from.pod, target)
		c.flows[from] = startFlow(t, connection)
	}
	return c
}

// targets returns the address of the pod of the other site, as it is seen from each site.
func (c *networkChaos) targets() map[*site]string {
	return map[*site]string{c.rome: "10.61.1.10:" + echoTCPPort, c.milan: "10.71.1.10:" + echoTCPPort}
}

// playRound plays each step once, in a random order.
func (c *networkChaos) playRound() {
	steps := map[string]func(*site){
		"active pod killed": func(s *site) {
			active, standby := c.pods[s].awaitRoles()
			active.kill()
			await(c.t, func() error { return expect(standby.metric("refract_gateway_active"), 1.0) })
			active.start()
		},
		"standby killed": func(s *site) {
			_, standby := c.pods[s].awaitRoles()
			standby.restart()
		},
		"line cut": func(s *site) { c.holdAndMend(cutLine(c.t, s.gatewayNode)) },
		"API server cut off from the active pod": func(s *site) {
			active, _ := c.pods[s].awaitRoles()
			c.holdAndMend(cutAPIServer(c.t, active))
		},
		"address changed": func(s *site) { c.changeAddress(s) },
		"rules flushed": func(s *site) {
			inNFTables(c.t, c.drawHost(s), func(conn *nftables.Conn) {
				conn.DelTable(&nftables.Table{Name: desired.TableName, Family: nftables.TableFamilyIPv4})
			})
		},
		"tracked connections flushed": func(s *site) {
			require.NoError(c.t, c.drawHost(s).Do(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) }))
		},
		"agent restarted": func(s *site) {
			agent := s.nodeAgents[c.random.IntN(len(s.nodeAgents))]
			agent.restart()
			agent.awaitApplied()
		},
	}
	names := []string{"API server cut off from the active pod", "active pod killed", "address changed", "agent restarted", "line cut",
		"rules flushed", "standby killed", "tracked connections flushed"}
	for _, i := range c.random.Perm(len(names)) {
		s := []*site{c.rome, c.milan}[c.random.IntN(2)]
		steps[names[i]](s)
		c.check(fmt.Sprintf("%s in %s", names[i], s.name))
	}
}

// holdAndMend waits for up to five seconds, and mends what was cut.
func (c *networkChaos) holdAndMend(mend func()) {
	time.Sleep(time.Duration(c.random.Int64N(int64(5 * time.Second))))
	mend()
}

// drawHost returns a node, the active pod or the standby of a site.
func (c *networkChaos) drawHost(s *site) *netlab.Host {
	hosts := []*netlab.Host{s.node, s.gatewayNode, c.pods[s].commands[0].host, c.pods[s].commands[1].host}
	return hosts[c.random.IntN(len(hosts))]
}

// changeAddress changes the address of a site on the internet. That of the server is also changed in the GatewayClient of the other site.
func (c *networkChaos) changeAddress(s *site) {
	t, other, addresses := c.t, map[*site]*site{c.rome: c.milan, c.milan: c.rome}[s], c.addresses[s]
	replaceAddress(t, s.gatewayNode, addresses[0], addresses[1])
	forgetNeighbours(t, other.gatewayNode)
	c.addresses[s] = [2]string{addresses[1], addresses[0]}
	if s != c.milan {
		return
	}
	gatewayClient := &networking.GatewayClient{}
	require.NoError(t, c.rome.client.Get(t.Context(), client.ObjectKey{Namespace: c.rome.tenant, Name: gatewayName}, gatewayClient))
	before := gatewayClient.DeepCopy()
	gatewayClient.Spec.Endpoint.Addresses = []string{addresses[1]}
	require.NoError(t, c.rome.client.Patch(t.Context(), gatewayClient, client.MergeFrom(before)))
}

// check waits until the network is as it should be.
func (c *networkChaos) check(step string) {
	t, begun := c.t, time.Now()
	for _, flow := range c.flows {
		flow.await(t)
	}
	took := time.Since(begun).Round(time.Millisecond)
	require.Less(t, took, healedTimeout, step)
	for from, target := range c.targets() {
		await(t, func() error { return expect(connects(from.pod, target), true) })
	}
	for _, s := range []*site{c.rome, c.milan} {
		c.pods[s].awaitRoles()
		s.awaitConnection(t, networking.Connected)
	}
	c.checkForbidden(step)
	gaps := map[string]time.Duration{}
	for s, flow := range c.flows {
		gaps[s.name] = flow.longestGap()
	}
	t.Logf("%s: connections went on after %s, longest gaps %v", step, took, gaps)
}

// checkForbidden checks that what the rules forbid does not pass: packets to a node of the other site, and to its gateway itself.
func (c *networkChaos) checkForbidden(step string) {
	forbidden := map[string]*site{"10.72.0.5": c.milan, "10.62.0.5": c.rome, "169.254.18.1": c.rome, "169.254.18.2": c.milan}
	for address, from := range forbidden {
		require.False(c.t, connects(from.pod, address+":"+echoTCPPort), "%s: %s", step, address)
	}
}
