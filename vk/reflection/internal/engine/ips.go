// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
)

const (
	// addressIndex finds the IP objects of a namespace by the address that they map.
	addressIndex = "address"
	// ipDebounce collects the changed IP objects of a rollout, because each one may affect every object of its
	// namespace that has addresses. A longer delay leaves new endpoints unmapped for longer.
	ipDebounce = 300 * time.Millisecond
)

// indexByAddress returns the index key of an IP object: its namespace and spec.ip.
func indexByAddress(object any) ([]string, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	ip, _, _ := unstructured.NestedString(u.Object, "spec", "ip")
	return []string{u.GetNamespace() + "/" + ip}, nil
}

// ipChanged enqueues the objects of the namespace whose kinds follow the network, because the mapping of their
// addresses may have changed, and updates the addresses of this cluster's API server.
func (m *Manager) ipChanged(_, ip *unstructured.Unstructured, _ bool) {
	if ip.GetNamespace() == m.options.LiqoNamespace {
		m.locateAPIServer()
	}
	m.changes.Add(1)
	t := m.extension(ip.GetNamespace())
	if t == nil {
		return
	}
	for _, r := range m.all() {
		if s := t.of(r.kind.Name); r.kind.Follows.Network && s != nil && s.ready.Load() {
			for _, object := range s.objects.In(t.local) {
				r.queue.AddAfter(raw.Key(object), ipDebounce)
			}
		}
	}
}

// locateAPIServer reads the addresses of this cluster's API server in the network of offloaded pods. They apply to pods
// that are offloaded from now on. (Liqo: API server support, host aliases.)
func (m *Manager) locateAPIServer() {
	if m.options.APIServer.Host != "" {
		return // the API server is already reached there
	}
	addresses, expected := slices.Clone(m.options.APIServer.IPs), false
	for _, ip := range m.ips.In(m.options.LiqoNamespace) {
		mapped, _, _ := unstructured.NestedString(ip.Object, "status", "ip")
		ofAPIServer := ip.GetName() == wire.APIServerIP || raw.Labels(ip.Object)[wire.IPTypeLabel] == wire.APIServerIP
		expected = expected || ofAPIServer
		if ofAPIServer && mapped != "" && !slices.Contains(addresses, mapped) {
			addresses = append(addresses, mapped)
		}
	}
	slices.Sort(addresses)
	before := m.settings.Load()
	if m.change(func(s *settings) { s.apiServerIPs, s.apiServerExpected = texts(addresses), expected }) && m.awaitsAPIServer(before) {
		m.enqueueKinds(func(k Kind) bool { return k.Follows.APIServer })
	}
}

// remapper returns the implementation of the plugins' remap_ip. Outgoing, it translates an address of this cluster into
// an address that the provider can reach: the provider itself remaps pod addresses, and other addresses need an IP
// object in their namespace. Without an IP object there is no mapping (yet). Incoming, it translates an address of the
// provider's pods into the address under which this cluster reaches it. Nothing is cached between calls, because an
// address may be reassigned.
func (m *Manager) remapper(namespace string, hook host.Hook) func(string) (string, bool) {
	if hook == host.Incoming {
		return m.options.RemoteIPs.Map
	}
	return func(ip string) (string, bool) {
		switch {
		case strings.Contains(ip, "/"):
			return m.remapBlock(ip)
		case m.ips == nil, m.options.LocalPodCIDRs.Contain(ip):
			return ip, true
		}
		for _, object := range m.ips.By(addressIndex, namespace+"/"+ip) {
			if mapped, ok, _ := unstructured.NestedString(object.Object, "status", "ip"); ok && mapped != "" {
				return mapped, true
			}
		}
		return "", false
	}
}

// remapBlock translates a CIDR block into the addresses that the provider uses. A block that overlaps remapped pod
// addresses has no translation, unless all of it belongs to the provider's pods: this cluster does not know how the
// provider remaps its pods. The block of all addresses is unchanged.
func (m *Manager) remapBlock(text string) (string, bool) {
	block, err := netip.ParsePrefix(text)
	if err != nil || block.Bits() == 0 {
		return text, err == nil
	}
	mapped, remapped, ok := m.options.RemoteIPs.Unmap(block)
	if !ok || !remapped && m.ips != nil && m.options.LocalPodCIDRs.Overlap(block) {
		return "", false
	}
	if !remapped {
		return text, true
	}
	return mapped.String(), true
}
