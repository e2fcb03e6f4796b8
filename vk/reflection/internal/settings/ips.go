// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

const (
	// addressIndex is the index of a namespace's IP resources by the address that they map.
	addressIndex = "address"
)

// indexByAddress returns the index key of an IP resource: its namespace and spec.ip.
func indexByAddress(object any) ([]string, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	ip, _, _ := unstructured.NestedString(u.Object, "spec", "ip")
	return []string{u.GetNamespace() + "/" + ip}, nil
}

// ipChanged handles an event of an IP resource. The mapping of addresses in its namespace and the addresses of this
// cluster's API server may have changed.
func (s *Settings) ipChanged(_, ip *unstructured.Unstructured, _ bool) {
	if ip.GetNamespace() == s.options.LiqoNamespace {
		s.locateAPIServer()
	}
	s.changes.Add(1)
	s.options.Listener.AddressesChanged(ip.GetNamespace())
}

// locateAPIServer reads from the IP resources at which addresses offloaded pods reach this cluster's API server.
// Changes apply to pods that are offloaded afterwards. This corresponds to the host aliases in Liqo's API server
// support.
func (s *Settings) locateAPIServer() {
	if s.options.APIServer.Host != "" {
		return // offloaded pods use the configured host instead
	}
	addresses, expected := slices.Clone(s.options.APIServer.IPs), false
	for _, ip := range s.IPs.In(s.options.LiqoNamespace) {
		mapped, _, _ := unstructured.NestedString(ip.Object, "status", "ip")
		ofAPIServer := ip.GetName() == wire.APIServerIP || raw.Labels(ip.Object)[wire.IPTypeLabel] == wire.APIServerIP
		expected = expected || ofAPIServer
		if ofAPIServer && mapped != "" && !slices.Contains(addresses, mapped) {
			addresses = append(addresses, mapped)
		}
	}
	slices.Sort(addresses)
	before := s.values.Load()
	if s.change(func(v *values) { v.apiServerIPs, v.apiServerExpected = texts(addresses), expected }) && s.awaitsAPIServer(before) {
		s.options.Listener.APIServerLocated()
	}
}

// Remapper returns the function remap_ip that plugins can call. For the outgoing hook, it translates an address of this
// cluster into an address that the provider can reach. Pod addresses are not changed, because the provider itself
// remaps them. All other addresses need an IP resource in their namespace, and have no mapping until it exists. For the
// incoming hook, it translates the address of a pod on the provider into the address at which this cluster reaches the
// pod. Results are not cached, because an address may be reassigned.
func (s *Settings) Remapper(namespace string, hook host.Hook) func(string) (string, bool) {
	if hook == host.Incoming {
		return s.options.RemoteIPs.Map
	}
	return func(ip string) (string, bool) {
		switch {
		case strings.Contains(ip, "/"):
			return s.remapBlock(ip)
		case s.IPs == nil, s.options.LocalPodCIDRs.Contain(ip):
			return ip, true
		}
		for _, object := range s.IPs.By(addressIndex, namespace+"/"+ip) {
			if mapped, ok, _ := unstructured.NestedString(object.Object, "status", "ip"); ok && mapped != "" {
				return mapped, true
			}
		}
		return "", false
	}
}

// remapBlock translates a CIDR block into the addresses that the provider uses. A block that overlaps remapped pod
// addresses can be translated only if it is completely within the addresses of the provider's pods, because this
// cluster does not know how the provider remaps the pods of this cluster. The block that contains all addresses is not
// changed.
func (s *Settings) remapBlock(text string) (string, bool) {
	block, err := netip.ParsePrefix(text)
	if err != nil || block.Bits() == 0 {
		return text, err == nil
	}
	mapped, remapped, ok := s.options.RemoteIPs.Unmap(block)
	if !ok || !remapped && s.IPs != nil && s.options.LocalPodCIDRs.Overlap(block) {
		return "", false
	}
	if !remapped {
		return text, true
	}
	return mapped.String(), true
}
