// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package netstate

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/nftables"
	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/refract-project/refract/test/support/netlab"
)

const (
	testLink  = "refract.vx"
	testTable = "refract"
	testRoute = 20000
)

var testScope = Scope{Links: []string{testLink, "liqo-tunnel"}, RouteTables: []int{testRoute, testRoute + 1}, Table: testTable, LocalRule: true}

func prefix(text string) netip.Prefix { return netip.MustParsePrefix(text) }
func addr(text string) netip.Addr     { return netip.MustParseAddr(text) }

// everything returns a State with each kind of object and each kind of rule.
func everything() State {
	return State{
		Links: []Link{{Name: testLink, MTU: 1400, VXLAN: &VXLAN{ID: 1, Port: 6092, MAC: "02:00:00:00:00:01"}, AcceptLocal: true,
			Addresses: []netip.Prefix{prefix("169.254.18.1/30")}}},
		Neighbours: []Neighbour{{testLink, addr("240.0.0.1"), "02:00:00:00:00:02"}, {testLink, addr("240.0.0.2"), "02:00:00:00:00:03"}},
		Forwards:   []Forward{{testLink, "02:00:00:00:00:02", addr("10.1.0.2")}, {testLink, "02:00:00:00:00:03", addr("10.1.0.3")}},
		Routes: []Route{
			{Table: testRoute, Destination: prefix("10.61.0.0/16"), Link: testLink, Via: addr("240.0.0.1"), MTU: 1340},
			{Table: testRoute, Destination: prefix("10.62.0.5/32"), Link: testLink, Via: addr("240.0.0.2")},
			{Table: testRoute, Destination: prefix("192.168.0.5/32"), Link: testLink, TOS: 0x1c},
			{Table: testRoute + 1, Destination: prefix("0.0.0.0/0")},
		},
		Rules: []PolicyRule{{Priority: 100, Table: testRoute}, {Priority: 101, In: "liqo-tunnel", Table: testRoute + 1},
			{Priority: 50, In: testLink, Mark: 7, Table: testRoute}},
		LocalPriority: 60,
		Table: Table{
			Name: testTable,
			Sets: []Set{{Name: "peers", Ranges: []netip.Prefix{prefix("10.62.0.0/16"), prefix("10.61.0.0/16"), prefix("10.70.0.0/24")}},
				{Name: "none"}},
			Maps: []AddressMap{{Name: "ips", Entries: map[netip.Addr]netip.Addr{addr("10.70.0.8"): addr("10.1.3.3"), addr("10.70.0.9"): addr("10.61.0.4")}},
				{Name: "empty"}},
			Chains: []Chain{
				{Name: "raw", Type: Filter, Hook: Prerouting, Priority: -300, Rules: []Rule{
					{Protocol: UDP, Port: 6092, Action: Action{NoTrack: true}, Comment: "VXLAN"}}},
				{Name: "to", Type: NAT, Hook: Prerouting, Priority: -100, Rules: []Rule{
					{In: testLink, Destination: prefix("10.61.0.0/16"), Action: Action{TranslateDestination: prefix("10.1.0.0/16")}},
					{In: testLink, Destination: prefix("10.70.0.9/32"), Action: Action{TranslateDestination: prefix("10.1.9.9/32")}},
					{In: testLink, Action: Action{Mark: 7}},
					{In: testLink, Action: Action{MapDestination: "ips"}}}},
				{Name: "from", Type: NAT, Hook: Postrouting, Priority: 99, Rules: []Rule{
					{Out: testLink, Source: prefix("10.1.0.0/16"), DestinationSet: "peers",
						Action: Action{TranslateSource: prefix("10.1.0.0/16")}},
					{In: testLink, DestinationSet: "peers", Action: Action{Masquerade: true}},
					{In: testLink, DestinationTranslated: true, Action: Action{Masquerade: true}},
					{In: testLink, Action: Action{KeepSource: true}}}},
				{Name: "forward", Type: Filter, Hook: Forwarding, Drop: true, Rules: []Rule{
					{Opening: true, Action: Action{MaxSegment: 1300}},
					{In: testLink, ToHost: true, Count: true, Action: Action{Drop: true}},
					{SourceSet: "peers", Answer: true, Action: Action{Accept: true}},
					{SourceSet: "none", NotSourceSet: true, Count: true, Action: Action{Drop: true}, Comment: "spoofed"},
					{SourceSet: "peers", DestinationSet: "none", NotDestinationSet: true, Protocol: ICMP, Action: Action{Accept: true}}}},
				{Name: "input", Type: Filter, Hook: Input}, {Name: "output", Type: Filter, Hook: Output},
			},
		},
	}
}

// newTestApplier returns an Applier in a new network namespace.
func newTestApplier(t *testing.T) (*Applier, *netlab.Host) {
	t.Helper()
	host := netlab.NewHost(t, "host")
	var a *Applier
	require.NoError(t, host.Do(func() (err error) {
		a, err = NewApplier(testScope)
		return err
	}))
	t.Cleanup(a.Close)
	return a, host
}

func apply(t *testing.T, a *Applier, s State) int {
	t.Helper()
	writes, err := a.Apply(s)
	require.NoError(t, err)
	return writes
}

// TestKernelKeepsState applies a State to a real kernel twice. The second time nothing may be written, even by a
// restarted process.
func TestKernelKeepsState(t *testing.T) {
	a, host := newTestApplier(t)
	require.Positive(t, apply(t, a, everything()))
	require.Zero(t, apply(t, a, everything()))
	require.NoError(t, host.Do(func() error {
		restarted, err := NewApplier(testScope)
		require.NoError(t, err)
		defer restarted.Close()
		require.Zero(t, apply(t, restarted, everything()))
		return nil
	}))
	require.Positive(t, apply(t, a, State{}))
	require.Zero(t, apply(t, a, State{}))
	left, err := a.kernel.read(testScope)
	require.NoError(t, err)
	untouched := newSnapshot()
	untouched.local[0] = true
	require.Equal(t, untouched, left)
}

// TestKernelRepairsEachObject removes or changes one object at a time, as another process might. Apply must restore the
// state with no more writes than necessary.
func TestKernelRepairsEachObject(t *testing.T) {
	a, host := newTestApplier(t)
	apply(t, a, everything())
	links := host.Links()
	link := func() netlink.Link {
		l, err := links.LinkByName(testLink)
		require.NoError(t, err)
		return l
	}
	var tables *nftables.Conn
	require.NoError(t, host.Do(func() (err error) {
		tables, err = nftables.New(nftables.AsLasting())
		return err
	}))
	table := &nftables.Table{Name: testTable, Family: nftables.TableFamilyIPv4}
	chain := func(name string) *nftables.Chain { return &nftables.Chain{Name: name, Table: table} }
	for name, c := range map[string]struct {
		damage func() error
		writes int
	}{
		"link deleted":     {func() error { return links.LinkDel(link()) }, 10},
		"link down":        {func() error { return links.LinkSetDown(link()) }, 6},
		"mtu":              {func() error { return links.LinkSetMTU(link(), 1300) }, 1},
		"another mac":      {func() error { return links.LinkSetHardwareAddr(link(), []byte{2, 0, 0, 0, 0, 9}) }, 11},
		"forwarding off":   {func() error { host.Sysctl("net/ipv4/conf/"+testLink+"/forwarding", "0"); return nil }, 1},
		"rp_filter on":     {func() error { host.Sysctl("net/ipv4/conf/"+testLink+"/rp_filter", "1"); return nil }, 1},
		"accept_local off": {func() error { host.Sysctl("net/ipv4/conf/"+testLink+"/accept_local", "0"); return nil }, 1},
		"rule of the table local at the default priority": {func() error {
			rule := netlink.NewRule()
			rule.Priority, rule.Table, rule.Family = 0, unix.RT_TABLE_LOCAL, unix.AF_INET
			return links.RuleAdd(rule)
		}, 1},
		"rule of the table local moved": {func() error {
			rule := netlink.NewRule()
			rule.Priority, rule.Table, rule.Family = 0, unix.RT_TABLE_LOCAL, unix.AF_INET
			moved := *rule
			moved.Priority = 60
			return errors.Join(links.RuleAdd(rule), links.RuleDel(&moved))
		}, 2},
		"address deleted": {func() error {
			return links.AddrDel(link(), &netlink.Addr{IPNet: netOf(prefix("169.254.18.1/30"))})
		}, 6}, // with its last address, a link also loses its settings and routes
		"another address": {func() error { return links.AddrAdd(link(), &netlink.Addr{IPNet: netOf(prefix("10.9.9.9/24"))}) }, 1},
		"route for a TOS deleted": {func() error {
			return links.RouteDel(&netlink.Route{Table: testRoute, Dst: netOf(prefix("192.168.0.5/32")), Tos: 0x1c})
		}, 1},
		"neighbour deleted": {func() error {
			return links.NeighDel(&netlink.Neigh{LinkIndex: link().Attrs().Index, IP: addr("240.0.0.1").AsSlice()})
		}, 1},
		"forward elsewhere": {func() error {
			return links.NeighSet(&netlink.Neigh{LinkIndex: link().Attrs().Index, Family: unix.AF_BRIDGE, State: netlink.NUD_PERMANENT,
				Flags: netlink.NTF_SELF, IP: addr("10.1.0.77").AsSlice(), HardwareAddr: []byte{2, 0, 0, 0, 0, 2}})
		}, 1},
		"another forward": {func() error {
			return links.NeighAppend(&netlink.Neigh{LinkIndex: link().Attrs().Index, Family: unix.AF_BRIDGE, State: netlink.NUD_PERMANENT,
				Flags: netlink.NTF_SELF, IP: addr("10.1.0.78").AsSlice(), HardwareAddr: []byte{2, 0, 0, 0, 0, 7}})
		}, 1},
		"route deleted": {func() error {
			return links.RouteDel(&netlink.Route{Table: testRoute, Dst: netOf(prefix("10.61.0.0/16"))})
		}, 1},
		"route to lo": {func() error {
			lo, err := links.LinkByName("lo")
			require.NoError(t, err)
			return links.RouteReplace(&netlink.Route{Table: testRoute, Dst: netOf(prefix("10.61.0.0/16")), LinkIndex: lo.Attrs().Index})
		}, 1},
		"another route": {func() error {
			return links.RouteAdd(&netlink.Route{Table: testRoute, Dst: netOf(prefix("10.99.0.0/16")), LinkIndex: link().Attrs().Index})
		}, 1},
		"rule deleted": {func() error {
			rule := netlink.NewRule()
			rule.Priority, rule.Table = 100, testRoute
			return links.RuleDel(rule)
		}, 1},
		"another rule of ours": {func() error {
			rule := netlink.NewRule()
			rule.Priority, rule.Table, rule.Protocol, rule.Family = 99, testRoute, Protocol, unix.AF_INET
			return links.RuleAdd(rule)
		}, 1},
		"everything of nftables flushed": {func() error { tables.FlushRuleset(); return tables.Flush() }, 1},
		"chain flushed":                  {func() error { tables.FlushChain(chain("from")); return tables.Flush() }, 1},
		"rule added": {func() error {
			tables.AddRule(&nftables.Rule{Table: table, Chain: chain("input")})
			return tables.Flush()
		}, 1},
		"chain added": {func() error { tables.AddChain(chain("more")); return tables.Flush() }, 1},
		"policy changed": {func() error {
			accept := nftables.ChainPolicyAccept
			c := chain("forward")
			c.Policy, c.Type, c.Hooknum, c.Priority = &accept, nftables.ChainTypeFilter, nftables.ChainHookForward,
				nftables.ChainPriorityFilter
			tables.AddChain(c)
			return tables.Flush()
		}, 1},
		"element deleted": {func() error {
			set := &nftables.Set{Table: table, Name: "peers", Interval: true, KeyType: nftables.TypeIPAddr}
			require.NoError(t, tables.SetDeleteElements(set, elementsOf(mergeRanges([]netip.Prefix{prefix("10.70.0.0/24")}))))
			return tables.Flush()
		}, 1},
		"element added to the empty set": {func() error {
			set := &nftables.Set{Table: table, Name: "none", Interval: true, KeyType: nftables.TypeIPAddr}
			require.NoError(t, tables.SetAddElements(set, elementsOf(mergeRanges([]netip.Prefix{prefix("10.70.0.0/24")}))))
			return tables.Flush()
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, c.damage())
			require.Equal(t, c.writes, apply(t, a, everything()))
			require.Zero(t, apply(t, a, everything()))
		})
	}
}

// TestKernelLeavesOthersAlone checks that objects outside of the Scope are not changed.
func TestKernelLeavesOthersAlone(t *testing.T) {
	a, host := newTestApplier(t)
	links := host.Links()
	lo, err := links.LinkByName("lo")
	require.NoError(t, err)
	others := &netlink.Route{Table: 300, Dst: netOf(prefix("10.61.0.0/16")), LinkIndex: lo.Attrs().Index}
	require.NoError(t, links.RouteAdd(others))
	rule := netlink.NewRule()
	rule.Priority, rule.Table, rule.Family = 100, 300, unix.AF_INET
	require.NoError(t, links.RuleAdd(rule))
	require.NoError(t, host.Do(func() error {
		c, err := nftables.New()
		require.NoError(t, err)
		c.AddTable(&nftables.Table{Name: testTable, Family: nftables.TableFamilyINet})
		c.AddTable(&nftables.Table{Name: "other", Family: nftables.TableFamilyIPv4})
		return c.Flush()
	}))
	apply(t, a, everything())
	apply(t, a, State{})
	routes, err := links.RouteListFiltered(unix.AF_INET, others, netlink.RT_FILTER_TABLE)
	require.NoError(t, err)
	require.Len(t, routes, 1)
	rules, err := links.RuleList(unix.AF_INET)
	require.NoError(t, err)
	require.Len(t, rules, 4) // three of the rules are the kernel's own
	require.NoError(t, host.Do(func() error {
		c, err := nftables.New()
		require.NoError(t, err)
		left, err := c.ListTables()
		require.Len(t, left, 2)
		return err
	}))
}

// TestReadReturnsWhatWasApplied checks the State that a new process reads after an earlier one has applied it.
func TestReadReturnsWhatWasApplied(t *testing.T) {
	a, _ := newTestApplier(t)
	nothing, err := a.Read()
	require.NoError(t, err)
	require.Zero(t, nothing)
	s := everything()

	apply(t, a, s)
	found, err := a.Read()
	require.NoError(t, err)
	require.ElementsMatch(t, s.Neighbours, found.Neighbours)
	require.ElementsMatch(t, s.Forwards, found.Forwards)
	require.ElementsMatch(t, s.Routes, found.Routes)
	sets := map[string][]netip.Prefix{}
	for _, set := range found.Table.Sets {
		sets[set.Name] = set.Ranges
	}
	require.Equal(t, map[string][]netip.Prefix{
		"peers": {prefix("10.61.0.0/16"), prefix("10.62.0.0/16"), prefix("10.70.0.0/24")}, "none": nil,
	}, sets)
}

// TestPrefixesCoverRanges checks ranges for which a single prefix is not sufficient.
func TestPrefixesCoverRanges(t *testing.T) {
	for _, prefixes := range [][]netip.Prefix{
		{prefix("10.1.0.0/16"), prefix("10.2.0.0/16")},
		{prefix("10.1.0.1/32"), prefix("10.1.0.2/31"), prefix("10.1.0.4/30"), prefix("10.1.0.8/32")},
		{prefix("0.0.0.0/1"), prefix("172.16.0.0/12")},
	} {
		require.Equal(t, prefixes, prefixesOf(mergeRanges(prefixes)))
	}
	require.Equal(t, []netip.Prefix{prefix("10.2.0.0/15")}, prefixesOf(mergeRanges([]netip.Prefix{prefix("10.2.0.0/16"), prefix("10.3.0.0/16")})))
}
