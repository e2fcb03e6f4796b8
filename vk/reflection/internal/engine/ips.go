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
	// ipDebounce gathers the IP objects of a rollout: each one may concern every object of its namespace that has addresses. Longer leaves
	// new endpoints unmapped for longer.
	ipDebounce = 300 * time.Millisecond
)

// indexByAddress keys an IP object by namespace and spec.ip.
func indexByAddress(object any) ([]string, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, nil
	}
	ip, _, _ := unstructured.NestedString(u.Object, "spec", "ip")
	return []string{u.GetNamespace() + "/" + ip}, nil
}

// ipChanged enqueues the objects of the namespace whose kinds follow the network, because their addresses may be mapped, and updates how this cluster's API server
// is reached.
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

// locateAPIServer reads under which addresses the network serves this cluster's API server to offloaded pods: those of
// pods that are offloaded from now on. (Liqo: API server support, host aliases.)
func (m *Manager) locateAPIServer() {
	if m.options.APIServer.Host != "" {
		return // that is how it is reached
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

// remapper returns what the plugins' remap_ip does. Outgoing, an address of this cluster is translated into one that
// the provider can reach: pod addresses are remapped by the provider itself, others need an IP object in their
// namespace, and without one there is no mapping (yet). Incoming, an address of the provider's pods is translated into
// the one by which it is reached from here. Nothing is remembered between calls: an address may change hands.
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

// remapBlock translates a block of addresses into the addresses that the provider uses. A block that overlaps remapped pod addresses has no translation, unless
// all of it belongs to the provider's pods: how the provider remaps the pods of this cluster is not known here. The block of all addresses stays.
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
