// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
)

// FindAddress returns a free address of the range: the first one after last that is not in use. At the end of the
// range, the search continues at the beginning. If last is not in the range, the search starts with the first address.
// FindAddress may return reserved addresses at the beginning of the range, unless the caller passes them in inUse.
func FindAddress(r netip.Prefix, inUse map[netip.Addr]bool, last netip.Addr) (netip.Addr, error) {
	r = r.Masked()
	next := r.Addr()
	if r.Contains(last) && last != next {
		next = last.Next()
	}
	// Each iteration skips at most one address in use.
	for range len(inUse) + 1 {
		if !r.Contains(next) {
			next = r.Addr()
		}
		if !inUse[next] {
			return next, nil
		}
		next = next.Next()
	}
	return netip.Addr{}, fmt.Errorf("all addresses of %s are in use", r)
}
