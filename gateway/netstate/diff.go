// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package netstate

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// snapshot is a State in a form that can be compared. It is either the desired State or the kernel's state within a
// Scope.
type snapshot struct {
	links      map[string]linkState
	neighbours map[neighbourKey]string     // MAC addresses of next hops
	forwards   map[forwardKey][]netip.Addr // hosts of MAC addresses
	routes     map[routeKey]Route
	rules      map[PolicyRule]int // number of equal rules
	local      map[int]bool       // priorities of the rules of the table local, if they are in the Scope
	table      *tableState        // nil if the table does not exist
}

type (
	neighbourKey struct {
		link string
		ip   netip.Addr
	}
	forwardKey struct{ link, mac string }
	routeKey   struct {
		table       int
		destination netip.Prefix
	}
)

// linkState contains the settings of an existing link.
type linkState struct {
	vxlan     *VXLAN
	mtu       int
	up        bool
	inet      inetSettings
	addresses []netip.Prefix
}

// inetSettings are the IPv4 settings of a link.
type inetSettings struct{ forward, reversePathCheck, acceptLocal bool }

// localRule is the policy rule of the kernel's table "local".
type localRule struct{ priority int }

// tableState is a table whose rules are encoded as the kernel stores them.
type tableState struct {
	name   string
	sets   map[string][]addressRange
	maps   map[string]map[string]string // content of the maps; values of verdict maps are names of chains
	chains map[string]chainState
}

type chainState struct {
	base  string
	drop  bool
	rules []string
}

// change is one request to the kernel.
type change struct {
	action action
	object any // a Link, linkAddress, Neighbour, Forward, Route, PolicyRule, localRule or Table
}

type action string

const (
	add    action = "add"
	set    action = "set"
	remove action = "delete"
)

type linkAddress struct {
	link    string
	address netip.Prefix
}

func (c change) String() string { return fmt.Sprintf("%s %T %+v", c.action, c.object, c.object) }

// diff returns the changes from the present to the desired snapshot. In their order, no packet can leave unfiltered:
// first the table, then the links, the next hops, the routes, and the rules that use the routes. Obsolete objects are
// removed in the reverse order.
func diff(present, desired snapshot, table Table) (changes []change) {
	request := func(a action, object any) { changes = append(changes, change{a, object}) }
	// There must always be a rule of the table local.
	for _, priority := range sorted(desired.local, cmp.Compare[int]) {
		if !present.local[priority] {
			request(add, localRule{priority})
		}
	}
	for _, priority := range sorted(present.local, cmp.Compare[int]) {
		if !desired.local[priority] {
			request(remove, localRule{priority})
		}
	}
	for _, r := range sorted(present.rules, comparePolicyRules) {
		for range present.rules[r] - desired.rules[r] {
			request(remove, r)
		}
	}
	for _, key := range sorted(present.routes, compareRouteKeys) {
		if _, ok := desired.routes[key]; !ok {
			request(remove, present.routes[key])
		}
	}
	for key, mac := range present.neighbours {
		if _, ok := desired.neighbours[key]; !ok {
			request(remove, Neighbour{key.link, key.ip, mac})
		}
	}
	if desired.table != nil && !present.table.equal(desired.table) {
		request(set, table)
	}
	changes = append(changes, diffLinks(present.links, desired.links)...)
	if present.table != nil && desired.table == nil {
		request(remove, Table{Name: present.table.name})
	}
	changes = append(changes, diffForwards(present.forwards, desired.forwards)...)
	for key, mac := range desired.neighbours {
		if present.neighbours[key] != mac {
			request(set, Neighbour{key.link, key.ip, mac})
		}
	}
	for _, key := range sorted(desired.routes, compareRouteKeys) {
		if present.routes[key] != desired.routes[key] {
			request(set, desired.routes[key])
		}
	}
	for _, r := range sorted(desired.rules, comparePolicyRules) {
		if present.rules[r] == 0 {
			request(add, r)
		}
	}
	return changes
}

// diffLinks returns the changes of links. A VXLAN device with other parameters is deleted and created again. Its
// entries and routes are then missing until they are added in the next round.
func diffLinks(present, desired map[string]linkState) (changes []change) {
	for _, name := range sorted(present, cmp.Compare[string]) {
		want, ok := desired[name]
		if has := present[name]; has.vxlan != nil && (!ok || want.vxlan != nil && *has.vxlan != *want.vxlan) {
			changes = append(changes, change{remove, Link{Name: name}})
		}
	}
	for _, name := range sorted(desired, cmp.Compare[string]) {
		has, exists := present[name]
		want := desired[name]
		link := Link{Name: name, MTU: want.mtu, VXLAN: want.vxlan, AcceptLocal: want.inet.acceptLocal, Addresses: want.addresses}
		if want.vxlan != nil && (!exists || has.vxlan == nil || *has.vxlan != *want.vxlan) {
			changes = append(changes, change{add, link})
			has = linkState{}
		}
		if has.mtu != want.mtu || !has.up || has.inet != want.inet {
			changes = append(changes, change{set, link})
		}
		for _, a := range has.addresses {
			if !slices.Contains(want.addresses, a) {
				changes = append(changes, change{remove, linkAddress{name, a}})
			}
		}
		for _, a := range want.addresses {
			if !slices.Contains(has.addresses, a) {
				changes = append(changes, change{add, linkAddress{name, a}})
			}
		}
	}
	return changes
}

// diffForwards returns the changes of the forwarding databases. Each MAC belongs to one host. The entry of a MAC is
// replaced in one request, so that a gateway can move to its standby without an interruption. Further hosts of the MAC,
// to which the kernel would send copies, are removed.
func diffForwards(present, desired map[forwardKey][]netip.Addr) (changes []change) {
	for key, hosts := range present {
		if _, ok := desired[key]; !ok || len(hosts) > 1 {
			for _, host := range hosts {
				changes = append(changes, change{remove, Forward{key.link, key.mac, host}})
			}
		}
	}
	for key, hosts := range desired {
		if has := present[key]; len(has) != 1 || has[0] != hosts[0] {
			changes = append(changes, change{set, Forward{key.link, key.mac, hosts[0]}})
		}
	}
	return changes
}

func (t *tableState) equal(other *tableState) bool {
	return t != nil && other != nil && t.sameStructure(other) &&
		maps.EqualFunc(t.sets, other.sets, slices.Equal[[]addressRange]) &&
		maps.EqualFunc(t.maps, other.maps, maps.Equal[map[string]string]) &&
		maps.EqualFunc(t.chains, other.chains, chainState.equal)
}

// sameStructure reports whether both tables have the same sets and maps, and the same chains at the same hooks. The contents
// may differ, and so may chains without a hook.
func (t *tableState) sameStructure(other *tableState) bool {
	return maps.EqualFunc(t.sets, other.sets, func(_, _ []addressRange) bool { return true }) &&
		maps.EqualFunc(t.maps, other.maps, func(_, _ map[string]string) bool { return true }) &&
		maps.Equal(t.hookedChains(), other.hookedChains())
}

// hookedChains returns the hooks of the chains that have one.
func (t *tableState) hookedChains() map[string]string {
	hooked := map[string]string{}
	for name, c := range t.chains {
		if c.base != "" {
			hooked[name] = c.base
		}
	}
	return hooked
}

func (c chainState) equal(other chainState) bool {
	return c.base == other.base && c.drop == other.drop && slices.Equal(c.rules, other.rules)
}

// addressRange contains the first address of a range, and the first address after it.
type addressRange struct{ first, end netip.Addr }

// mergeRanges returns the ranges of the prefixes in ascending order. Adjacent ranges are merged, and so are ranges that
// overlap, because the kernel cannot store these in a set.
func mergeRanges(prefixes []netip.Prefix) (ranges []addressRange) {
	ordered := slices.SortedFunc(slices.Values(prefixes), func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	for _, p := range ordered {
		r := addressRange{p.Masked().Addr(), lastAddress(p).Next()}
		if n := len(ranges); n > 0 && r.first.Compare(ranges[n-1].end) <= 0 {
			if ranges[n-1].end.Less(r.end) {
				ranges[n-1].end = r.end
			}
			continue
		}
		ranges = append(ranges, r)
	}
	return ranges
}

// lastAddress returns the last IPv4 address of a range.
func lastAddress(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().As4()
	for i := range 32 {
		if i >= p.Bits() {
			bytes[i/8] |= 1 << (7 - i%8)
		}
	}
	return netip.AddrFrom4(bytes)
}

func sorted[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	return slices.SortedFunc(maps.Keys(m), compare)
}

func compareRouteKeys(a, b routeKey) int {
	return cmp.Or(cmp.Compare(a.table, b.table), a.destination.Addr().Compare(b.destination.Addr()),
		cmp.Compare(a.destination.Bits(), b.destination.Bits()))
}

func comparePolicyRules(a, b PolicyRule) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.In, b.In), cmp.Compare(a.Mark, b.Mark), cmp.Compare(a.Table, b.Table))
}

// prefixesOf returns prefixes that cover the ranges exactly. Each of them is the largest prefix that begins at the
// first remaining address and fits.
func prefixesOf(ranges []addressRange) (prefixes []netip.Prefix) {
	for _, r := range ranges {
		for first := r.first; first.Less(r.end); {
			p := netip.PrefixFrom(first, 0)
			for p.Masked() != p || !lastAddress(p).Less(r.end) {
				p = netip.PrefixFrom(first, p.Bits()+1)
			}
			prefixes = append(prefixes, p)
			first = lastAddress(p).Next()
		}
	}
	return prefixes
}
