// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"fmt"
	"net/netip"
)

// FindAddress returns a free address of the range: the first one after last that is not in use. After the end of the
// range, the search continues at its beginning. If last is the zero value, the search begins with the first address.
// Reserved addresses at the beginning of the range count as free unless the caller passes them in inUse.
func FindAddress(r netip.Prefix, inUse map[netip.Addr]bool, last netip.Addr) (netip.Addr, error) {
	r = r.Masked()
	next := r.Addr()
	if r.Contains(last) && last != next {
		next = last.Next()
	}
	// The loop skips each address in use at most once.
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
