// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package ipmap translates addresses of another cluster's networks into the ranges that this cluster uses for them.
//
// When the networks of two clusters overlap, this cluster reaches the pod range 10.0.0.0/16 of the other cluster as,
// for example, 10.71.0.0/16: the network bits are replaced, and the host bits stay. A Table contains pairs of ranges,
// pod ranges before external ranges, and the first pair that contains an address applies.
package ipmap

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Config contains the values of the flags for remapped ranges. The lists of ranges of the provider, and the lists of
// ranges that the consumer uses for them, correspond by index.
type Config struct {
	PodCIDRs           []string // --remote-pod-cidr
	PodCIDRRemaps      []string // --remote-pod-cidr-remap
	ExternalCIDRs      []string // --remote-external-cidr
	ExternalCIDRRemaps []string // --remote-external-cidr-remap
}

// Table is an immutable list of remapped ranges. It is safe for concurrent use. A nil Table does not change any
// address.
type Table struct{ pairs []pair }

type pair struct{ from, to netip.Prefix }

// List maps the ranges in From to the ranges at the same index in To. Errors contain the names of the two lists.
type List struct {
	From, To         []string
	FromName, ToName string
}

// New builds a table from the flags. See NewTable for the errors.
func New(config Config) (*Table, error) {
	return NewTable(
		List{From: config.PodCIDRs, To: config.PodCIDRRemaps, FromName: "--remote-pod-cidr", ToName: "--remote-pod-cidr-remap"},
		List{From: config.ExternalCIDRs, To: config.ExternalCIDRRemaps, FromName: "--remote-external-cidr", ToName: "--remote-external-cidr-remap"},
	)
}

// NewTable builds a table from the lists, in their order. It returns an error for lists of different lengths, invalid
// ranges, and pairs of ranges with different families or sizes, because the host bits of an address must fit into the
// other range.
func NewTable(lists ...List) (*Table, error) {
	table := &Table{}
	for _, list := range lists {
		if len(list.From) != len(list.To) {
			return nil, fmt.Errorf("%s lists %d ranges but %s lists %d: set one remapped range for each",
				list.FromName, len(list.From), list.ToName, len(list.To))
		}
		for i := range list.From {
			p, err := parsePair(list.From[i], list.To[i])
			if err != nil {
				return nil, fmt.Errorf("parsing %s number %d, %w", list.FromName, i+1, err)
			}
			table.pairs = append(table.pairs, p)
		}
	}
	return table, nil
}

func parsePair(from, to string) (pair, error) {
	f, err := netip.ParsePrefix(from)
	if err != nil {
		return pair{}, fmt.Errorf("range %q is not a CIDR such as 10.0.0.0/16: %w", from, err)
	}
	t, err := netip.ParsePrefix(to)
	if err != nil {
		return pair{}, fmt.Errorf("remapped range %q is not a CIDR such as 10.71.0.0/16: %w", to, err)
	}
	if f.Addr().Is4() != t.Addr().Is4() {
		return pair{}, fmt.Errorf("range %s and its remapped range %s are not of the same IP family", f, t)
	}
	if f.Bits() != t.Bits() {
		return pair{}, fmt.Errorf("range %s and its remapped range %s are not of the same size", f, t)
	}
	return pair{from: f.Masked(), to: t.Masked()}, nil
}

// Map returns the address that this cluster uses for ip. If no range contains ip, it is ip itself. ok is false if ip is
// not an IP address.
func (t *Table) Map(ip string) (string, bool) {
	mapped, _, ok := t.Find(ip)
	return mapped, ok
}

// Find returns the same address as Map. It also reports whether a range contains ip.
func (t *Table) Find(ip string) (mapped string, within, ok bool) {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return "", false, false
	}
	if t == nil {
		return ip, false, true
	}
	plain := addr.Unmap().WithZone("")
	for _, p := range t.pairs {
		if !p.from.Contains(plain) {
			continue
		}
		if p.from == p.to {
			return ip, true, true
		}
		return Remap(plain, p.to).String(), true, true
	}
	return ip, false, true
}

// Unmap translates a block of addresses from the ranges that this cluster uses to the addresses in the other cluster.
// within reports whether one of the ranges contains the block. ok is false if only a part of the block is remapped, or
// if the block overlaps a range of the other cluster that is remapped.
func (t *Table) Unmap(block netip.Prefix) (own netip.Prefix, within, ok bool) {
	if t == nil {
		return block, false, true
	}
	for _, p := range t.pairs {
		if p.to.Bits() <= block.Bits() && p.to.Contains(block.Addr()) {
			return netip.PrefixFrom(Remap(block.Addr(), p.from), block.Bits()), true, true
		}
	}
	for _, p := range t.pairs {
		if p.from != p.to && (p.to.Overlaps(block) || p.from.Overlaps(block)) {
			return netip.Prefix{}, false, false
		}
	}
	return block, false, true
}

// Remap replaces the network bits of addr with the network bits of to, and keeps the host bits. An address of another
// family is returned unchanged.
func Remap(addr netip.Addr, to netip.Prefix) netip.Addr {
	if addr.Is4() != to.Addr().Is4() {
		return addr
	}
	host, network := addr.AsSlice(), to.Masked().Addr().AsSlice()
	for i := range host {
		mask := hostMask(to.Bits() - 8*i)
		host[i] = host[i]&mask | network[i]
	}
	mapped, _ := netip.AddrFromSlice(host)
	return mapped
}

// hostMask returns a mask that selects the host bits of a byte whose first n bits belong to the network.
func hostMask(n int) byte {
	switch {
	case n <= 0:
		return 0xff
	case n >= 8:
		return 0
	default:
		return 0xff >> n
	}
}

// Ranges is a list of address ranges, such as the pod ranges of this cluster.
type Ranges []netip.Prefix

// ParseRanges parses the values of the named flag.
func ParseRanges(flag string, values []string) (Ranges, error) {
	var ranges Ranges
	for _, value := range values {
		prefix, err := netip.ParsePrefix(value)
		if err != nil {
			return nil, fmt.Errorf("parsing %s, %q is not a CIDR such as 10.0.0.0/16: %w", flag, value, err)
		}
		ranges = append(ranges, prefix.Masked())
	}
	return ranges, nil
}

// Contain reports whether any of the ranges contains the address.
func (r Ranges) Contain(ip string) bool {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return false
	}
	addr = addr.Unmap().WithZone("")
	for _, prefix := range r {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// Overlap reports whether any of the ranges overlaps the block.
func (r Ranges) Overlap(block netip.Prefix) bool {
	return slices.ContainsFunc(r, block.Overlaps)
}

// Summarize returns the smallest number of ranges that contain the same addresses, in sorted order.
func (r Ranges) Summarize() Ranges {
	sorted := slices.Clone(r)
	for i, prefix := range sorted {
		sorted[i] = prefix.Masked()
	}
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var summary Ranges
	for _, prefix := range sorted {
		if last := len(summary) - 1; last >= 0 && summary[last].Overlaps(prefix) {
			// A larger range before this one already contains it.
			continue
		}
		for len(summary) > 0 {
			parent, is := parentOf(summary[len(summary)-1], prefix)
			if !is {
				break
			}
			summary, prefix = summary[:len(summary)-1], parent
		}
		summary = append(summary, prefix)
	}
	return summary
}

// parentOf returns the range whose two halves are first and second, and whether there is such a range.
func parentOf(first, second netip.Prefix) (netip.Prefix, bool) {
	if first.Bits() != second.Bits() || first.Bits() == 0 || first.Addr().Is4() != second.Addr().Is4() {
		return netip.Prefix{}, false
	}
	parent := netip.PrefixFrom(first.Addr(), first.Bits()-1).Masked()
	return parent, parent.Contains(second.Addr())
}

// Reserved reports whether the address is loopback, link-local, multicast or unspecified. Such an address never belongs
// to another cluster. A text that is not an address is not reserved.
func Reserved(ip string) bool {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return false
	}
	addr = addr.Unmap()
	return addr.IsLoopback() || addr.IsUnspecified() || addr.IsLinkLocalUnicast() || addr.IsMulticast()
}
