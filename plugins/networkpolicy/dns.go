// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/refract-project/refract/sdk"

const (
	// dnsNamespace is the namespace of a cluster's DNS. It is usually not offloaded, because each cluster has its own DNS.
	dnsNamespace = "kube-system"
	dnsPort      = 53
)

// allowDNS adds a rule for the provider's DNS, which offloaded pods use, if the peer of the rule includes this
// cluster's DNS. The peer must have a namespace selector. allowDNS reports whether it has added a rule.
func (t *translator) allowDNS(rule, peer sdk.Node) bool {
	selector := peer.Get("namespaceSelector")
	if untranslatable(selector) != "" || !selects(selector, dnsNamespace) || t.ctx.Namespaces().Has(dnsNamespace) {
		return false
	}
	ports := rule.Get("ports")
	if ports.Len("") > 0 && !servesDNS(ports) {
		return false
	}
	allowed := t.spec.Get("egress").SetMap("-")
	to := allowed.SetList("to").SetMap("-")
	to.SetString(sdk.Concat("namespaceSelector.matchLabels", sdk.Key(nameLabel)), dnsNamespace)
	if peer.Has("podSelector") {
		to.Copy("podSelector", peer.Get("podSelector"))
	}
	copyDNSPorts(allowed.SetList("ports"), ports)
	return true
}

// servesDNS reports whether one of the ports is used for DNS.
func servesDNS(ports sdk.Node) bool {
	for i := range ports.Len("") {
		if isDNS(ports.At(i)) {
			return true
		}
	}
	return false
}

// isDNS reports whether a port or a range of ports includes the DNS port. If the port has a name, it must be one of the
// names that CoreDNS uses.
func isDNS(port sdk.Node) bool {
	switch port.Kind("port") {
	case sdk.KindAbsent, sdk.KindNull:
		return true // a missing port means all ports
	case sdk.KindString:
		return port.Is("port", "dns") || port.Is("port", "dns-tcp")
	}
	first := port.Int("port", 0)
	return first <= dnsPort && dnsPort <= port.Int("endPort", first)
}

// copyDNSPorts appends the ports that are used for DNS to list. If there are no ports, it appends the DNS port for UDP
// and TCP.
func copyDNSPorts(list, ports sdk.Node) {
	if ports.Len("") == 0 {
		for _, protocol := range [...]string{"UDP", "TCP"} {
			addPort(list, protocol)
		}
		return
	}
	for i := range ports.Len("") {
		port := ports.At(i)
		switch {
		case !isDNS(port):
		case port.Kind("port") == sdk.KindString:
			list.Copy("-", port)
		default:
			addPort(list, port.String("protocol"))
		}
	}
}

func addPort(list sdk.Node, protocol string) {
	port := list.SetMap("-")
	if protocol != "" {
		port.SetString("protocol", protocol)
	}
	port.SetInt("port", dnsPort)
}
