// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/test/support/netlab"
)

// reversePathFilter is the kernel setting for all links of a host. The greater one of it and of the setting of a link applies.
const reversePathFilter = "net/ipv4/conf/all/rp_filter"

// TestReversePathFilter checks that the kernels of hosts may check the way back of all packets, strictly (1) or loosely (2): packets of
// pods and of nodes pass, and gateways and nodes reach each other.
func TestReversePathFilter(t *testing.T) {
	netlab.Need(t)
	for _, value := range []string{"1", "2"} {
		t.Run(value, func(t *testing.T) {
			rome, milan := newClustersWith(t, func(c *cluster) {
				for _, host := range []*netlab.Host{c.gate, c.node, c.gatewayNode} {
					host.Sysctl(reversePathFilter, value)
				}
			})
			listen(t, rome.pod)
			listen(t, milan.pod)
			for _, from := range []*netlab.Host{rome.pod, rome.node} {
				connection, _ := dial(t, from, "10.61.1.10:8080")
				exchange(t, connection)
			}
			connection, _ := dial(t, milan.pod, "10.71.1.10:8080")
			exchange(t, connection)
			for _, c := range []*cluster{rome, milan} {
				// A node that has been reached is missing after 5 seconds, and one that has not after 30.
				before := dropped(t, c.gate)[requestComment]
				await(t, func() error { return expect(dropped(t, c.gate)[requestComment] >= before+12, true) })
				dropAt(t, c.node, nftables.ChainHookInput, desired.VXLANPort)
				begun := time.Now()
				c.gateway.awaitEvent(func(e event) bool { return e.Leg != nil && slices.Equal(e.Leg.Missing, []string{"node"}) })
				require.Less(t, time.Since(begun), 15*time.Second, "the node had been reached")
				allowPorts(t, c.node)
				c.gateway.awaitEvent(func(e event) bool { return e.Leg != nil && len(e.Leg.Missing) == 0 })
				c.agents[0].awaitEvent(func(e event) bool { return e.Leg != nil && len(e.Leg.Missing) == 0 })
			}
		})
	}
}
