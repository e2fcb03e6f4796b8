// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/refract-project/refract/internal/ipmap"
)

// AddressNotAllowedReason is the reason of the Event about an address of the provider that is not shown.
const AddressNotAllowedReason = "AddressNotAllowed"

// notAllowed reports whether nothing of a provider can have the address: it is not an address in canonical form, is
// reserved, is in this cluster, or is in none of the known ranges of the provider. The traffic of a Service here would
// go to the address. (The class of CVE-2021-25740.)
func (m *Manager) notAllowed(address string, known ipmap.Ranges) bool {
	if _, err := netip.ParseAddr(address); err != nil {
		// Older API servers accept texts such as 010.96.0.1, which other programs parse as another address.
		return true
	}
	return ipmap.Reserved(address) || m.options.LocalPodCIDRs.Contain(address) || m.options.OwnCIDRs.Contain(address) ||
		len(known) > 0 && !known.Contain(address)
}

func (m *Manager) addressNote(addresses []string) string {
	return fmt.Sprintf("cluster %s reported the address %s, which is reserved, belongs to this cluster, or is outside the provider's CIDRs, and was ignored. Check the provider's network, or correct --own-cidrs, --local-podcidr, --remote-pod-cidr-remap and --foreign-cidrs",
		m.options.RemoteClusterID, strings.Join(addresses, ", "))
}
