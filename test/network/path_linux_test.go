// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"

	"github.com/google/nftables"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/gateway/desired"
	"github.com/refract-project/refract/test/support/netlab"
)

// TestPodsOfEqualClusters connects pods of two clusters in which all addresses are equal, the pods' own included.
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
}
