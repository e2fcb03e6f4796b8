// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"net/netip"
	"strings"

	"github.com/refract-project/refract/internal/ipmap"
)

// StrangeAddressReason is the reason of the Event that an address of the provider is not shown.
const StrangeAddressReason = "StrangeAddress"

// strange reports whether nothing of a provider can have the address: it is reserved, in this cluster, or in
// none of the ranges that are known to be its. The traffic of a Service here would go there. (The class of CVE-2021-25740.)
func (m *Manager) strange(address string, known ipmap.Ranges) bool {
	if _, err := netip.ParseAddr(address); err != nil {
		return false // for the API server to refuse
	}
	return ipmap.Reserved(address) || m.options.LocalPodCIDRs.Contain(address) || m.options.OwnCIDRs.Contain(address) ||
		len(known) > 0 && !known.Contain(address)
}

// withoutStrangeBalancers returns the status without load-balancer addresses that the provider cannot have, and which these are.
func (m *Manager) withoutStrangeBalancers(status map[string]any) (map[string]any, []string) {
	balancer, _ := status["loadBalancer"].(map[string]any)
	entries, _ := balancer["ingress"].([]any)
	var strange []string
	kept := make([]any, 0, len(entries))
	for _, item := range entries {
		entry, _ := item.(map[string]any)
		if ip, _ := entry["ip"].(string); ip != "" && m.strange(ip, m.options.ForeignCIDRs) {
			strange = append(strange, ip)
			continue
		}
		kept = append(kept, item)
	}
	if len(strange) == 0 {
		return status, nil
	}
	balancer, status = maps.Clone(balancer), maps.Clone(status)
	balancer["ingress"], status["loadBalancer"] = kept, balancer
	return status, strange
}

func (m *Manager) strangeNote(addresses []string) string {
	return fmt.Sprintf("cluster %s reported the address %s, which is reserved, belongs to this cluster, or is outside its CIDRs; ignoring it. Check the network of that cluster, or correct --own-cidrs, --local-podcidr, --remote-pod-cidr-remap and --foreign-cidrs",
		m.options.RemoteClusterID, strings.Join(addresses, ", "))
}
