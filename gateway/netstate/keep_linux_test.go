// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package netstate

import (
	"context"
	"net/netip"
	"testing"

	"github.com/google/nftables"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestKeepRepairs changes an object of each kind, and waits until Keep has restored it. Changes outside of the Scope
// must be ignored.
func TestKeepRepairs(t *testing.T) {
	a, host := newTestApplier(t)
	ctx, cancel := context.WithCancel(t.Context())
	states, outcomes, ended := make(chan State), make(chan Outcome, 100), make(chan error, 1)
	go func() {
		ended <- host.Do(func() error { return a.Keep(ctx, states, func(o Outcome) { outcomes <- o }) })
	}()
	states <- everything()
	first := <-outcomes
	require.NoError(t, first.Err)
	require.False(t, first.Repair)
	require.Positive(t, first.Writes)

	links := host.Links()
	link, err := links.LinkByName(testLink)
	require.NoError(t, err)
	index := link.Attrs().Index
	rule := netlink.NewRule()
	rule.Priority, rule.Table = 100, testRoute
	for name, damage := range map[string]func() error{
		"route": func() error {
			return links.RouteDel(&netlink.Route{Table: testRoute, Dst: netOf(prefix("10.61.0.0/16"))})
		},
		"rule": func() error { return links.RuleDel(rule) },
		"neighbour": func() error {
			return links.NeighDel(&netlink.Neigh{LinkIndex: index, IP: addr("240.0.0.1").AsSlice()})
		},
		"forward": func() error {
			return links.NeighDel(&netlink.Neigh{LinkIndex: index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF,
				IP:           addr("10.1.0.2").AsSlice(),
				HardwareAddr: []byte{2, 0, 0, 0, 0, 2}})
		},
		"address":   func() error { return links.AddrAdd(link, &netlink.Addr{IPNet: netOf(prefix("10.9.9.9/24"))}) },
		"setting":   func() error { host.Sysctl("net/ipv4/conf/"+testLink+"/rp_filter", "1"); return nil },
		"link down": func() error { return links.LinkSetDown(link) },
		"nftables": func() error {
			return host.Do(func() error {
				c, err := nftables.New()
				require.NoError(t, err)
				c.FlushRuleset()
				return c.Flush()
			})
		},
		"element": func() error {
			return host.Do(func() error {
				c, err := nftables.New()
				require.NoError(t, err)
				set := &nftables.Set{Table: &nftables.Table{Name: testTable, Family: nftables.TableFamilyIPv4}, Name: "peers",
					Interval: true,
					KeyType:  nftables.TypeIPAddr}
				require.NoError(t, c.SetDeleteElements(set, elementsOf(mergeRanges([]netip.Prefix{prefix("10.70.0.0/24")}))))
				return c.Flush()
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, damage())
			o := <-outcomes
			require.NoError(t, o.Err)
			require.True(t, o.Repair)
			require.Positive(t, o.Writes)
		})
	}
	// Another process makes a change outside of the Scope, and then a new State is sent. Only the new State must be
	// reported.
	require.NoError(t, host.Do(func() error {
		c, err := nftables.New()
		require.NoError(t, err)
		c.AddTable(&nftables.Table{Name: "other", Family: nftables.TableFamilyIPv4})
		return c.Flush()
	}))
	states <- State{}
	require.False(t, (<-outcomes).Repair)
	cancel()
	require.NoError(t, <-ended)
}
