// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// DefaultPools returns the pools that replacement ranges are taken from, in the order of use. They are the ranges of
// RFC 1918, as in Liqo.
func DefaultPools() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("172.16.0.0/12")}
}

// Use is a range in use.
type Use struct {
	Range netip.Prefix
	// Holder names the user of the range for messages, such as "Network liqo/pod-cidr" or "the nodes of this
	// cluster".
	Holder string
}

// ExhaustedError is returned if no pool has a free range of the requested size.
type ExhaustedError struct {
	// Wish is the range that the caller requested.
	Wish netip.Prefix
	// Pools are the ranges that were searched.
	Pools []netip.Prefix
	// Uses are the ranges in use that are in the pools.
	Uses []Use
}

// maxNamedUses is the maximum number of holders in the message of an ExhaustedError.
const maxNamedUses = 5

func (e *ExhaustedError) Error() string {
	var holders []string
	for i, use := range e.Uses {
		if i == maxNamedUses {
			holders = append(holders, fmt.Sprintf("and %d more", len(e.Uses)-i))
			break
		}
		holders = append(holders, fmt.Sprintf("%s by %s", use.Range, use.Holder))
	}
	return fmt.Sprintf("no pool (%s) has a free range of the size /%d for %s: in use are %s", joinRanges(e.Pools), e.Wish.Bits(), e.Wish, strings.Join(holders, ", "))
}

func joinRanges(ranges []netip.Prefix) string {
	texts := make([]string, len(ranges))
	for i, r := range ranges {
		texts[i] = r.String()
	}
	return strings.Join(texts, ", ")
}

// FindOverlap returns the first element of uses that overlaps the range, or nil if there is none.
func FindOverlap(r netip.Prefix, uses []Use) *Use {
	for i := range uses {
		if uses[i].Range.Overlaps(r) {
			return &uses[i]
		}
	}
	return nil
}

// FindRange returns the range wish if it is in a pool and does not overlap a range in use. Otherwise it returns a free
// range of the same size from the pools. It prefers ranges that do not split a larger free block, and among these the
// lowest range. The error is an *ExhaustedError.
func FindRange(pools []netip.Prefix, uses []Use, wish netip.Prefix) (netip.Prefix, error) {
	wish = wish.Masked()
	for _, pool := range pools {
		if contains(pool, wish) && FindOverlap(wish, uses) == nil {
			return wish, nil
		}
	}
	for _, pool := range pools {
		if found, ok := findFree(pool.Masked(), overlapping(pool, uses), wish.Bits()); ok {
			return found, nil
		}
	}
	exhausted := &ExhaustedError{Wish: wish, Pools: pools}
	for _, pool := range pools {
		exhausted.Uses = append(exhausted.Uses, overlapping(pool, uses)...)
	}
	return netip.Prefix{}, exhausted
}

// findFree returns a free range with the given prefix length in the block. All uses must overlap the block.
func findFree(block netip.Prefix, uses []Use, bits int) (netip.Prefix, bool) {
	isTaken := slices.ContainsFunc(uses, func(u Use) bool { return contains(u.Range, block) })
	switch {
	case isTaken || block.Bits() > bits || block.Bits() == bits && len(uses) > 0:
		return netip.Prefix{}, false
	case block.Bits() == bits:
		return block, true
	}
	first, second := halves(block)
	ofFirst, ofSecond := overlapping(first, uses), overlapping(second, uses)
	if !isSplit(first, ofFirst) && isSplit(second, ofSecond) {
		first, second, ofFirst, ofSecond = second, first, ofSecond, ofFirst
	}
	if found, ok := findFree(first, ofFirst, bits); ok {
		return found, true
	}
	return findFree(second, ofSecond, bits)
}

// isSplit reports whether a part of the block is in use, but no range in use contains the whole block.
func isSplit(block netip.Prefix, uses []Use) bool {
	return len(uses) > 0 && !slices.ContainsFunc(uses, func(u Use) bool { return contains(u.Range, block) })
}

func overlapping(block netip.Prefix, uses []Use) (found []Use) {
	for _, use := range uses {
		if use.Range.Overlaps(block) {
			found = append(found, use)
		}
	}
	return found
}

// contains reports whether all addresses of inner are in outer.
func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// halves returns the two halves of an IPv4 block with more than one address.
func halves(block netip.Prefix) (first, second netip.Prefix) {
	bits := block.Bits() + 1
	address := block.Addr().As4()
	address[(bits-1)/8] |= 0x80 >> ((bits - 1) % 8)
	return netip.PrefixFrom(block.Addr(), bits), netip.PrefixFrom(netip.AddrFrom4(address), bits)
}
