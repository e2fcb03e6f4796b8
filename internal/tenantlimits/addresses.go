// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenantlimits

// Settings for the addresses that a consumer's endpoints may have and that its pods may reach.
var (
	EndpointCIDRs = &Setting{Name: "endpoint-cidrs", Kind: CIDRs, Default: "0.0.0.0/0,::/0",
		Help: "CIDRs of the endpoints of a consumer; ranges of this cluster and reserved addresses are never allowed. --tenant-cidrs-of overrides them for one consumer"}
	FQDNEndpoints = &Setting{Name: "fqdn-endpoints", Kind: Switch, Default: "false",
		Help: "allow EndpointSlices of consumers with host names (address type FQDN), which no check can hold to the ranges of the consumer"}
	EgressPolicy = &Setting{Name: "egress-policy", Kind: Switch, Default: "true",
		Help: "create a NetworkPolicy in the namespaces of consumers that keeps their pods from this cluster's own pods, Services " +
			"and nodes, from its other peers, and from metadata services"}
	EgressCIDRs = &Setting{Name: "egress-cidrs", Kind: CIDRs, Default: "",
		Help: "CIDRs of this cluster or of its other peers that the NetworkPolicy lets the pods of consumers reach nevertheless"}
	WiderEgress = &Setting{Name: "wider-egress", Kind: Switch, Default: "true",
		Help: "let NetworkPolicies of consumers allow egress that this cluster's own do not allow; policies add up"}
)

var addressSettings = []*Setting{EndpointCIDRs, FQDNEndpoints, EgressPolicy, EgressCIDRs, WiderEgress}
