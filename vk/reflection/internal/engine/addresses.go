// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/refract-project/refract/internal/ipmap"
)

// AddressNotAllowedReason is the reason of the Event that an address of the provider is not shown.
const AddressNotAllowedReason = "AddressNotAllowed"

// notAllowed reports whether nothing of a provider can have the address: it is no address in its canonical form, reserved, in this cluster, or in
// none of the ranges that are known to be its. The traffic of a Service here would go there. (The class of CVE-2021-25740.)
func (m *Manager) notAllowed(address string, known ipmap.Ranges) bool {
	if _, err := netip.ParseAddr(address); err != nil {
		// Older API servers take texts such as 010.96.0.1, which others read as another address.
		return true
	}
	return ipmap.Reserved(address) || m.options.LocalPodCIDRs.Contain(address) || m.options.OwnCIDRs.Contain(address) ||
		len(known) > 0 && !known.Contain(address)
}

func (m *Manager) addressNote(addresses []string) string {
	return fmt.Sprintf("cluster %s reported the address %s, which is reserved, belongs to this cluster, or is outside the provider's CIDRs, and was ignored. Check the provider's network, or correct --own-cidrs, --local-podcidr, --remote-pod-cidr-remap and --foreign-cidrs",
		m.options.RemoteClusterID, strings.Join(addresses, ", "))
}
