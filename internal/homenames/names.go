// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package homenames

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// DefaultDomain is the domain of the DNS of most clusters.
const DefaultDomain = "cluster.local"

// Names translates between the DNS names of a consumer's cluster and those of this cluster. It is immutable.
type Names struct {
	homeDomain, clusterDomain string // in lower case, with a final dot
	remoteNamespaces          map[string]string
	homeNamespaces            map[string]string
	// homeAddresses maps the cluster IPs of Services in this cluster to their cluster IPs in the consumer's cluster, and clusterAddresses
	// is the reverse. Both are empty if the nodes do not translate addresses.
	homeAddresses, clusterAddresses map[netip.Addr]netip.Addr
}

// NewNames returns the translation for a consumer whose cluster has the domain homeDomain, while this cluster has the
// domain clusterDomain. remoteNamespaces contains the remote namespaces by the consumer's namespaces. Two namespaces
// cannot have the same remote namespace.
func NewNames(homeDomain, clusterDomain string, remoteNamespaces map[string]string) (*Names, error) {
	n := &Names{
		homeDomain: canonicalDomain(homeDomain), clusterDomain: canonicalDomain(clusterDomain),
		remoteNamespaces: map[string]string{}, homeNamespaces: map[string]string{},
	}
	for home, remote := range remoteNamespaces {
		if other, taken := n.homeNamespaces[remote]; taken {
			return nil, fmt.Errorf("namespaces %s and %s of the consumer have the same remote namespace %s: unoffload one of them", min(home, other), max(home, other), remote)
		}
		n.remoteNamespaces[home], n.homeNamespaces[remote] = remote, home
	}
	return n, nil
}

// ServiceAddress contains the IPv4 cluster IPs of a Service in the consumer's cluster and in this cluster.
type ServiceAddress struct{ Home, Cluster netip.Addr }

// WithAddresses returns a copy that also translates cluster IPs of Services. If several Services have the same address in the
// consumer's cluster, the reverse look-up of that address gives the first one.
func (n *Names) WithAddresses(addresses []ServiceAddress) *Names {
	changed := *n
	changed.homeAddresses, changed.clusterAddresses = map[netip.Addr]netip.Addr{}, map[netip.Addr]netip.Addr{}
	for _, a := range addresses {
		changed.homeAddresses[a.Cluster] = a.Home
		if _, ok := changed.clusterAddresses[a.Home]; !ok {
			changed.clusterAddresses[a.Home] = a.Cluster
		}
	}
	return &changed
}

// withoutHomeAddresses returns a copy that answers with the addresses of this cluster. Reverse look-ups still find the addresses of
// both clusters.
func (n *Names) withoutHomeAddresses() *Names {
	changed := *n
	changed.homeAddresses = nil
	return &changed
}

// Len returns the number of namespaces.
func (n *Names) Len() int { return len(n.remoteNamespaces) }

// canonicalDomain returns the domain in lower case and with a final dot.
func canonicalDomain(domain string) string { return lower(strings.Trim(domain, ".")) + "." }

// kindOfName says how a name of a question is resolved.
type kindOfName int

const (
	// otherName is a name that is the same in both clusters.
	otherName kindOfName = iota
	// translatedName is a name in an offloaded namespace.
	translatedName
	// absentName is a name of a Service or pod of the consumer's cluster that cannot exist in this cluster: the domains
	// differ, and the namespace is not offloaded.
	absentName
)

// toCluster translates a name of the consumer's cluster to the name that this cluster has for the same object. If both
// clusters have the same domain, names in namespaces that are not offloaded are names of this cluster, as they are for
// pods that use the DNS of this cluster.
func (n *Names) toCluster(name string) (string, kindOfName) {
	if address, ok := parseReverse(name); ok {
		if cluster, translated := n.clusterAddresses[address]; translated {
			return reverseName(cluster), translatedName
		}
		return name, otherName
	}
	object, namespace, zone, ok := split(name, n.homeDomain)
	if !ok {
		return name, otherName
	}
	if remote, offloaded := n.remoteNamespaces[namespace]; offloaded {
		return object + remote + zone + n.clusterDomain, translatedName
	}
	if n.homeDomain != n.clusterDomain {
		return name, absentName
	}
	return name, otherName
}

// reverseZone is the end of the names in reverse look-ups of IPv4 addresses.
const reverseZone = ".in-addr.arpa."

// parseReverse returns the address in a name of the reverseZone.
func parseReverse(name string) (netip.Addr, bool) {
	reversed, ok := strings.CutSuffix(lower(name), reverseZone)
	if !ok {
		return netip.Addr{}, false
	}
	parts := strings.Split(reversed, ".")
	slices.Reverse(parts)
	address, err := netip.ParseAddr(strings.Join(parts, "."))
	return address, err == nil && address.Is4()
}

// reverseName returns the name of an IPv4 address in the reverseZone.
func reverseName(address netip.Addr) string {
	b := address.As4()
	return fmt.Sprintf("%d.%d.%d.%d%s", b[3], b[2], b[1], b[0], reverseZone)
}

// toHome translates a name of this cluster to the name that the consumer's cluster has for the same object. It returns
// names in other namespaces unchanged. The domain itself is the name of the SOA record that clients need in order to
// cache negative answers.
func (n *Names) toHome(name string) string {
	if lower(name) == n.clusterDomain {
		return n.homeDomain
	}
	object, namespace, zone, ok := split(name, n.clusterDomain)
	if home, offloaded := n.homeNamespaces[namespace]; ok && offloaded {
		return object + home + zone + n.homeDomain
	}
	return name
}

// split splits the name of a Service, an endpoint or a pod in domain into the part before the namespace, the namespace
// in lower case, and the zone svc or pod between dots.
func split(name, domain string) (object, namespace, zone string, ok bool) {
	folded := lower(name)
	for _, zone := range [...]string{".svc.", ".pod."} {
		rest, found := strings.CutSuffix(folded, zone+domain)
		if !found {
			continue
		}
		at := strings.LastIndexByte(rest, '.') + 1
		return name[:at], rest[at:], zone, true
	}
	return "", "", "", false
}

// lower returns a DNS name in lower case. Only ASCII letters have cases in DNS, and the length does not change.
func lower(name string) string {
	for i := range len(name) {
		if c := name[i]; 'A' <= c && c <= 'Z' {
			folded := []byte(name)
			for j := i; j < len(folded); j++ {
				if c := folded[j]; 'A' <= c && c <= 'Z' {
					folded[j] = c + 'a' - 'A'
				}
			}
			return string(folded)
		}
	}
	return name
}
