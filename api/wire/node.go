// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Labels and taints of a virtual node.
const (
	// RemoteClusterIDLabel names the other cluster: on nodes, namespaces and
	// most resources of a peering.
	RemoteClusterIDLabel = "liqo.io/remote-cluster-id"

	// TypeLabel with the value VirtualNodeType marks a Node that is virtual.
	TypeLabel = "liqo.io/type"
	// VirtualNodeType is the value of TypeLabel.
	VirtualNodeType = "virtual-node"

	// AutoscalerTypeLabel with the value AutoscalerType makes cluster
	// autoscalers to leave the node alone.
	AutoscalerTypeLabel = "type"
	// AutoscalerType is the value of AutoscalerTypeLabel.
	AutoscalerType = "virtual-kubelet"

	// VirtualNodeTaint, with the value VirtualNodeTaintValue and the effect
	// NoExecute, keeps ordinary pods off virtual nodes.
	VirtualNodeTaint = "virtual-node.liqo.io/not-allowed"
	// VirtualNodeTaintValue is the value of VirtualNodeTaint.
	VirtualNodeTaintValue = "true"

	// StorageAvailableLabel reports whether the node offers storage classes.
	StorageAvailableLabel = "storage.liqo.io/available"

	// ProviderVersionLabel is the version of the provider's API server, as that reports it, with "_" for "+".
	ProviderVersionLabel = "plugins.refract.io/provider-version"

	// ExcludeFromExternalLoadBalancersLabel (Kubernetes) keeps cloud load
	// balancers from sending traffic to the node.
	ExcludeFromExternalLoadBalancersLabel = "node.kubernetes.io/exclude-from-external-load-balancers"
	// LegacyExcludeBalancerLabel is the former name of ExcludeFromExternalLoadBalancersLabel.
	LegacyExcludeBalancerLabel = "alpha.service-controller.kubernetes.io/exclude-balancer"
)

// Reasons of the conditions of a virtual Node.
const (
	NodeReadyReason            = "KubeletReady"
	NodeNotReadyReason         = "KubeletNotReady"
	NodeSufficientMemoryReason = "RemoteClusterHasSufficientMemory"
	NodeMemoryPressureReason   = "RemoteClusterHasMemoryPressure"
	NodeNoDiskPressureReason   = "RemoteClusterHasNoDiskPressure"
	NodeDiskPressureReason     = "RemoteClusterHasDiskPressure"
	NodeNoPIDPressureReason    = "RemoteClusterHasNoPIDPressure"
	NodePIDPressureReason      = "RemoteClusterHasPIDPressure"
	NodeNetworkUpReason        = "LiqoNetworkingUp"
	NodeNetworkDownReason      = "LiqoNetworkingDown"
)

// What VirtualNodes and the Deployments of their virtual kubelets carry.
const (
	// VirtualNodeFinalizer holds a VirtualNode until its node is drained. Liqo's
	// controllers set it and take it off, none of ours does.
	VirtualNodeFinalizer = "virtualnode-controller.liqo.io/finalizer"
	// VirtualNodeLabel names the VirtualNode, on its virtual kubelet.
	VirtualNodeLabel = "liqo.io/virtual-node"
	// ComponentLabel is the component of a pod of the installation.
	ComponentLabel = "offloading.liqo.io/component"
	// VirtualKubeletComponent is the value of ComponentLabel on virtual kubelets.
	VirtualKubeletComponent = "virtual-kubelet"
	// SharedLease is the Lease, in the tenant namespace, for which all virtual
	// nodes of a provider compete: its holder reflects what they share.
	SharedLease = "virtual-kubelet-leader-election"
	// KubeconfigSecretKey is the key, in the Secret that a VirtualNode names,
	// of the kubeconfig that opens the provider.
	KubeconfigSecretKey = "kubeconfig"
)

// PermanentlyUnreachableAnnotation ("true"), on a ForeignCluster, declares a
// cluster dead.
const PermanentlyUnreachableAnnotation = "liqo.io/foreign-cluster-permanently-unreachable"

// PluginsConfigMapAnnotation on a VkOptionsTemplate names a ConfigMap, in the namespace of each virtual kubelet, whose binaryData are
// modules for it.
const PluginsConfigMapAnnotation = "plugins.refract.io/plugins-configmap"

// TemplateHashAnnotation on the Deployment of a virtual kubelet is a sum of what was asked for.
const TemplateHashAnnotation = "plugins.refract.io/template-hash"

// TemplateAnnotation on the Deployment of a virtual kubelet says from which VkOptionsTemplate it was made, and from which generation of it:
// "liqo/virtual-kubelet-default@3".
const TemplateAnnotation = "plugins.refract.io/template"

// AddressesAnnotation, "false" on a VirtualNode, has its virtual kubelet show no addresses of the provider: no network leads there.
const AddressesAnnotation = "plugins.refract.io/reflect-addresses"

// RangesAnnotation, on a VirtualNode, holds the ranges, as CIDRs separated by commas, of the provider's pods and load balancers. Addresses
// elsewhere are not shown.
const RangesAnnotation = "plugins.refract.io/provider-cidrs"

// OverlappingRangesAnnotation ("true"), on a PeerNetwork, records that the clusters were joined although ranges overlap, because a network
// between them translates addresses.
const OverlappingRangesAnnotation = "plugins.refract.io/overlapping-ranges"

// DeclaredRangesAnnotation, on a PeerNetwork, lists which pod ranges were declared by hand, "local" and "remote", separated by a comma. The others
// are those of the nodes.
const DeclaredRangesAnnotation = "plugins.refract.io/declared-ranges"

// APIServerURLAnnotation, on the Secret with the kubeconfig of a provider, holds the address of its API server if that was declared by hand.
const APIServerURLAnnotation = "plugins.refract.io/api-server-url"

// FormerImageAnnotation, on a VirtualNode and a VkOptionsTemplate, is the image of the virtual kubelet before refractctl liqo adopt.
const FormerImageAnnotation = "plugins.refract.io/former-image"

// AdoptedImageAnnotation, on a VkOptionsTemplate, is the image that refractctl liqo adopt has set.
const AdoptedImageAnnotation = "plugins.refract.io/adopted-image"

// DrainAnnotation, "true" on a VirtualNode, has its Node cordoned and drained, until the annotation is removed and the Node uncordoned.
const DrainAnnotation = "plugins.refract.io/drain"

// NetworkStatusAnnotation (Established, Pending or Error), on a ForeignCluster,
// is how the operator of a network fabric says whether addresses on the provider can
// be reached.
const NetworkStatusAnnotation = "plugins.refract.io/network-status"

// NetworkProbeAnnotation, on a ForeignCluster, is an address on the provider that
// reports whether the network between the clusters works: tcp://HOST:PORT, or an
// http or https URL. It is asked from this cluster, as the API server is.
const NetworkProbeAnnotation = "plugins.refract.io/network-probe"
