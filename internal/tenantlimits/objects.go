// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenantlimits

// Settings for claims, Services and Ingresses.
var (
	StorageClasses = &Setting{Name: "storage-classes", Kind: Names,
		Help: "storage classes that the claims of consumers may have; a listed class also opens the unclaimed PersistentVolumes that have it"}
	MaxClaimSize = &Setting{Name: "max-claim-size", Kind: Quantity, Default: "1Ti",
		Help: "maximum size of a claim of a consumer, as a quantity, or unlimited"}
	VolumeAttributesClasses = &Setting{Name: "volume-attributes-classes", Kind: Globs,
		Help: "volume attributes classes that the claims of consumers may name"}
	ClaimDataSources = &Setting{Name: "claim-data-sources", Kind: Switch, Default: "false",
		Help: "whether claims of consumers may name a data source of their own namespace"}

	ExternalNames = &Setting{Name: "external-names", Kind: Switch, Default: "false",
		Help: "whether Services of consumers may be of type ExternalName"}
	ChosenNodePorts = &Setting{Name: "chosen-node-ports", Kind: Switch, Default: "false",
		Help: "whether Services of consumers may choose their node ports"}
	ChosenAddresses = &Setting{Name: "chosen-addresses", Kind: Switch, Default: "false",
		Help: "whether Services of consumers may choose their cluster IPs and load balancer IPs"}
	LoadBalancerClasses = &Setting{Name: "load-balancer-classes", Kind: Globs,
		Help: "load balancer classes that Services of consumers may name"}
	IngressClasses = &Setting{Name: "ingress-classes", Kind: Globs,
		Help: "ingress classes that Ingresses of consumers may name"}
	IngressHosts = &Setting{Name: "ingress-hosts", Kind: Globs,
		Help: "hosts of Ingresses of consumers; only * allows Ingresses without a host, and default backends"}
)

var objectSettings = []*Setting{
	StorageClasses, MaxClaimSize, VolumeAttributesClasses, ClaimDataSources,
	ExternalNames, ChosenNodePorts, ChosenAddresses, LoadBalancerClasses, IngressClasses, IngressHosts,
}
