// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	api "github.com/refract-project/refract/api/ipam/v1alpha1"
	networking "github.com/refract-project/refract/api/networking/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/ipam"
)

// Reasons why a request is not granted.
const (
	// invalidReason means that the request is not an IPv4 range or address, or reserves more addresses than the range
	// has.
	invalidReason = "Invalid"
	// rangeTakenReason means that the range is in use, and the Network does not accept another one.
	rangeTakenReason = "RangeTaken"
	// exhaustedReason means that there is no free range or no free address.
	exhaustedReason = "PoolExhausted"
	// networkMissingReason means that the Network of an IP does not exist, is ambiguous, or has no range yet.
	networkMissingReason = "NetworkMissing"
)

// maxPreAllocated is the maximum number of addresses that a Network may reserve. Each of them takes memory in every
// pass.
const maxPreAllocated = 1 << 16

// refusal is the reason why a request is not granted. The zero value means that it is not refused.
type refusal struct{ reason, message string }

func refuse(reason, format string, args ...any) refusal {
	return refusal{reason, fmt.Sprintf(format, args...)}
}

// planNetworks grants ranges to Networks without a range, by setting their status. granted contains the indexes of
// these Networks. refused contains the reasons for the Networks that got no range. own contains the ranges of nodes,
// pods and Services of this cluster. ofIPs contains ranges with addresses that IPs use; they are not granted to a peer.
// There are no side effects except on the given Networks.
func planNetworks(networks []api.Network, own, ofIPs []ipam.Use) (granted []int, refused map[int]refusal) {
	refused = map[int]refusal{}
	var pending []int
	var uses, wishes []ipam.Use
	for i := range networks {
		n := &networks[i]
		switch r, err := netip.ParsePrefix(string(n.Status.CIDR)); {
		case n.Status.CIDR == "" && n.DeletionTimestamp == nil:
			pending = append(pending, i)
		case err == nil:
			uses = append(uses, useOf(n, r))
		}
	}
	slices.SortStableFunc(pending, func(a, b int) int { return compareTurns(&networks[a], &networks[b]) })
	for _, i := range pending {
		if r, err := netip.ParsePrefix(string(networks[i].Spec.CIDR)); err == nil && isOwn(&networks[i]) {
			wishes = append(wishes, useOf(&networks[i], r))
		}
	}
	for _, i := range pending {
		n := &networks[i]
		everything := slices.Concat(uses, own, wishesOfOthers(wishes, n))
		if isOfPeer(n) {
			everything = append(everything, ofIPs...)
		}
		r, why := grantRange(n, networks, uses, everything)
		if why.reason != "" {
			refused[i] = why
			continue
		}
		n.Status.CIDR = networking.CIDR(r.String())
		uses = append(uses, useOf(n, r))
		granted = append(granted, i)
	}
	return granted, refused
}

// grantRange returns the range for a Network. If the Network does not accept another range than the requested one, it
// represents a range of this cluster itself, or a range that must be kept free. Such a request conflicts only with the
// ranges of other Networks. Any other range must not overlap any range in use.
func grantRange(n *api.Network, networks []api.Network, granted, everything []ipam.Use) (netip.Prefix, refusal) {
	wish, err := netip.ParsePrefix(string(n.Spec.CIDR))
	if err != nil || !wish.Addr().Is4() {
		return netip.Prefix{}, refuse(
			invalidReason,
			"spec.cidr: %s is not a range of IPv4 addresses, and only IPv4 is supported",
			n.Spec.CIDR,
		)
	}
	if n.Labels[wire.NetworkNotRemappedLabel] == "true" {
		for _, use := range granted {
			if use.Range.Overlaps(wish) && !mayShare(n, networks, use.Holder) {
				return netip.Prefix{}, refuse(rangeTakenReason,
					"spec.cidr: %s overlaps %s of %s, and the label %s excludes another range: delete one of the Networks",
					wish, use.Range, use.Holder, wire.NetworkNotRemappedLabel)
			}
		}
		return wish.Masked(), refusal{}
	}
	found, err := ipam.FindRange(ipam.DefaultPools(), everything, wish)
	if err != nil {
		return netip.Prefix{}, refuse(exhaustedReason, "spec.cidr: %v: delete unused Networks, or let the peer use smaller ranges", err)
	}
	return found, refusal{}
}

// mayShare reports whether the Network n and the Network whose name in messages is holder may use the same addresses.
func mayShare(n *api.Network, networks []api.Network, holder string) bool {
	isShared := func(n *api.Network) bool {
		return n.Labels[wire.NetworkNotRemappedLabel] == "true" && n.Labels[wire.NetworkSharedLabel] == "true"
	}
	return isShared(n) && slices.ContainsFunc(networks, func(other api.Network) bool {
		return isShared(&other) && describe("Network", &other) == holder
	})
}

// isOwn reports whether a Network represents a range of this cluster. Such ranges take precedence over ranges of peers.
func isOwn(n *api.Network) bool {
	return n.Labels[wire.NetworkNotRemappedLabel] == "true" || n.Labels[wire.NetworkTypeLabel] != ""
}

// isOfPeer reports whether a Network represents a range of a peer.
func isOfPeer(n *api.Network) bool { return n.Labels[wire.CIDRTypeLabel] != "" }

// compareTurns defines the order in which Networks get ranges: first the Networks that do not accept another range,
// then the ranges of this cluster, then the ranges of peers. Within each group, older Networks come first.
func compareTurns(a, b *api.Network) int {
	rank := func(n *api.Network) int {
		switch {
		case n.Labels[wire.NetworkNotRemappedLabel] == "true":
			return 0
		case isOwn(n):
			return 1
		}
		return 2
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), compareAges(a, b))
}

func compareAges(a, b metav1.Object) int {
	first, second := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(first.Compare(second.Time), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

// listUses returns the ranges that contain addresses of IPs. IPs keep a range in use even after its Network was
// deleted.
func listUses(ips []api.IP) (uses []ipam.Use) {
	known := map[networking.CIDR]bool{}
	for i := range ips {
		cidr := ips[i].Status.CIDR
		r, err := netip.ParsePrefix(string(cidr))
		if err != nil || known[cidr] {
			continue
		}
		known[cidr] = true
		uses = append(uses, ipam.Use{Range: r, Holder: describe("IP", &ips[i])})
	}
	return uses
}

// wishesOfOthers returns the requested ranges without the range that the Network n itself requests.
func wishesOfOthers(wishes []ipam.Use, n *api.Network) []ipam.Use {
	return slices.DeleteFunc(slices.Clone(wishes), func(use ipam.Use) bool { return use.Holder == describe("Network", n) })
}

func useOf(n *api.Network, r netip.Prefix) ipam.Use {
	return ipam.Use{Range: r, Holder: describe("Network", n)}
}

// describe returns the name of an object for messages.
func describe(kind string, object metav1.Object) string {
	return kind + " " + object.GetNamespace() + "/" + object.GetName()
}

// planIPs grants addresses to IPs without an address, by setting their status. granted contains the indexes of these
// IPs. refused contains the reasons for the IPs that got no address. last contains the last address that each Network
// has granted, and is updated. It prevents an address that has become free from being granted again immediately.
func planIPs(ips []api.IP, networks []api.Network, last map[types.UID]netip.Addr) (granted []int, refused map[int]refusal) {
	refused = map[int]refusal{}
	var pending []int
	inUse := map[netip.Addr]bool{}
	for i := range ips {
		switch address, err := netip.ParseAddr(string(ips[i].Status.IP)); {
		case ips[i].Status.IP == "" && ips[i].DeletionTimestamp == nil:
			pending = append(pending, i)
		case err == nil:
			inUse[address] = true
		}
	}
	slices.SortStableFunc(pending, func(a, b int) int { return compareAges(&ips[a], &ips[b]) })
	reserved := map[types.UID]map[netip.Addr]bool{}
	for _, i := range pending {
		n, r, why := findNetwork(ips[i].Spec.NetworkRef, networks)
		if why.reason != "" {
			refused[i] = why
			continue
		}
		taken := reserved[n.UID]
		if taken == nil {
			taken = reserveFirst(r, n.Spec.PreAllocated)
			for address := range inUse {
				if r.Contains(address) {
					taken[address] = true
				}
			}
			reserved[n.UID] = taken
		}
		address, err := ipam.FindAddress(r, taken, last[n.UID])
		if err != nil {
			refused[i] = refuse(exhaustedReason, "%s: %v: delete IPs that nobody needs", describe("Network", n), err)
			continue
		}
		last[n.UID], inUse[address] = address, true
		for _, taken := range reserved { // the ranges of several Networks may overlap
			taken[address] = true
		}
		ips[i].Status.IP, ips[i].Status.CIDR = networking.IP(address.String()), networking.CIDR(r.String())
		granted = append(granted, i)
	}
	return granted, refused
}

// reserveFirst returns the first addresses of a range, which are not granted to IPs.
func reserveFirst(r netip.Prefix, number uint32) map[netip.Addr]bool {
	reserved := map[netip.Addr]bool{}
	for address := r.Masked().Addr(); number > 0 && r.Contains(address); address = address.Next() {
		reserved[address] = true
		number--
	}
	return reserved
}

// findNetwork returns the Network of an IP and the range of this Network. If the IP has no reference, this is the
// external range of this cluster.
func findNetwork(reference *corev1.ObjectReference, networks []api.Network) (*api.Network, netip.Prefix, refusal) {
	var found []*api.Network
	for i := range networks {
		n := &networks[i]
		isMeant := n.Labels[wire.NetworkTypeLabel] == wire.ExternalNetwork
		if reference != nil {
			isMeant = n.Namespace == reference.Namespace && n.Name == reference.Name
		}
		if isMeant {
			found = append(found, n)
		}
	}
	asked := "the label " + wire.NetworkTypeLabel + "=" + wire.ExternalNetwork
	if reference != nil {
		asked = "the name " + reference.Namespace + "/" + reference.Name + ", spec.networkRef"
	}
	switch {
	case len(found) == 0:
		return nil, netip.Prefix{}, refuse(networkMissingReason, "no Network has %s: create it", asked)
	case len(found) > 1:
		return nil, netip.Prefix{}, refuse(networkMissingReason, "%s and %s have %s: delete one of them, or set spec.networkRef",
			describe("Network", found[0]), describe("Network", found[1]), asked)
	}
	r, err := netip.ParsePrefix(string(found[0].Status.CIDR))
	switch {
	case isOfPeer(found[0]):
		return nil, netip.Prefix{}, refuse(
			invalidReason,
			"spec.networkRef: %s has the addresses of a peer, which it grants itself: name a Network of this cluster, or none",
			describe("Network", found[0]),
		)
	case err != nil:
		return nil, netip.Prefix{}, refuse(networkMissingReason, "%s has no range yet", describe("Network", found[0]))
	case found[0].Spec.PreAllocated > maxPreAllocated:
		return nil, netip.Prefix{}, refuse(invalidReason, "%s: spec.preAllocated is %d: at most %d addresses can be reserved",
			describe("Network", found[0]), found[0].Spec.PreAllocated, maxPreAllocated)
	}
	return found[0], r, refusal{}
}
