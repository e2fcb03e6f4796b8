// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
)

const (
	// MaxPeerRanges is the maximum number of ranges that another cluster may have. With more ranges, the list of
	// rules for each packet would be too long.
	MaxPeerRanges = 16
	// minPeerBits is the shortest prefix length of another cluster's range. A larger range would leave no room in any
	// pool.
	minPeerBits = 8
)

// forbidden lists ranges that no other cluster may have, with their purpose (RFC 6890).
var forbidden = []Use{
	{netip.MustParsePrefix("0.0.0.0/8"), "addresses of this network"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback addresses"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local addresses, and those of the tunnel"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast addresses"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved addresses"},
}

// ParsePeerRanges parses the ranges that another cluster reports for its pods or external addresses. It returns an
// error for ranges that would redirect traffic of this cluster or its hosts. The error names the range and the remedy.
func ParsePeerRanges(texts []string) ([]netip.Prefix, error) {
	if len(texts) > MaxPeerRanges {
		return nil, fmt.Errorf("%d ranges are too many: merge them, at most %d are supported", len(texts), MaxPeerRanges)
	}
	ranges := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		r, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%q is no address range: write it as 10.1.0.0/16", text)
		case !r.Addr().Is4():
			return nil, fmt.Errorf("%s is not an IPv4 range: only IPv4 crosses between clusters", r)
		case r != r.Masked():
			return nil, fmt.Errorf("%s has host bits: write it as %s", r, r.Masked())
		case r.Bits() < minPeerBits:
			return nil, fmt.Errorf("%s is larger than /%d, which no cluster can replace: name the ranges that the pods really have", r, minPeerBits)
		}
		if use := FindOverlap(r, forbidden); use != nil {
			return nil, fmt.Errorf("%s overlaps %s (%s): name the ranges that the pods really have", r, use.Range, use.Holder)
		}
		for _, other := range ranges {
			if other.Overlaps(r) {
				return nil, fmt.Errorf("%s and %s overlap: name each address once", other, r)
			}
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}
