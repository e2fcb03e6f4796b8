// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package app

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	ipam "github.com/refract-project/refract/api/ipam/v1alpha1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/gateway/desired"
)

// shrinkIP keeps only the fields of an IP that gateways and agents read. There may be one IP for each offloaded pod.
func shrinkIP(object any) (any, error) {
	ip, ok := object.(*ipam.IP)
	if !ok {
		return object, nil
	}
	small := &ipam.IP{Spec: ipam.IPSpec{IP: ip.Spec.IP, Masquerade: ip.Spec.Masquerade}, Status: ipam.IPStatus{IP: ip.Status.IP}}
	small.Namespace, small.Name, small.UID, small.ResourceVersion = ip.Namespace, ip.Name, ip.UID, ip.ResourceVersion
	if ip.Labels[wire.NodeIPLabel] != "" {
		small.Labels = map[string]string{wire.NodeIPLabel: ip.Labels[wire.NodeIPLabel]}
	}
	return small, nil
}

// splitIPs separates the addresses of nodes, which are IPs in the namespace of the installation, from the mappings for
// peers. IPs without a granted address are left out. The error names IPs that cannot be used.
func splitIPs(installation string, ips []ipam.IP) (ofNodes []ipam.IP, mappings []desired.Mapping, err error) {
	var errs []error
	for i := range ips {
		ip := &ips[i]
		if ip.Labels[wire.NodeIPLabel] == "true" {
			if ip.Namespace == installation {
				ofNodes = append(ofNodes, *ip)
			}
			continue
		}
		if ip.Status.IP == "" {
			continue
		}
		m, err := parseMapping(ip)
		if err != nil {
			errs = append(errs, fmt.Errorf("IP %s/%s, %w", ip.Namespace, ip.Name, err))
			continue
		}
		mappings = append(mappings, m)
	}
	slices.SortFunc(mappings, func(a, b desired.Mapping) int { return a.Granted.Compare(b.Granted) })
	return ofNodes, mappings, errors.Join(errs...)
}

func parseMapping(ip *ipam.IP) (m desired.Mapping, err error) {
	if m.Granted, err = netip.ParseAddr(string(ip.Status.IP)); err != nil || !m.Granted.Is4() {
		return m, fmt.Errorf("status.ip %q is not an IPv4 address", ip.Status.IP)
	}
	if m.Target, err = netip.ParseAddr(string(ip.Spec.IP)); err != nil || !desired.IsTarget(m.Target) {
		return m, fmt.Errorf("spec.ip %q is not the IPv4 address of a host: peers do not reach it", ip.Spec.IP)
	}
	m.Masquerade = ip.Spec.Masquerade != nil && *ip.Spec.Masquerade
	return m, nil
}
