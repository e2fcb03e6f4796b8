// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Labels and taints of a virtual node.
const (
	// RemoteClusterIDLabel contains the ID of the other cluster. It is on nodes, namespaces and most resources of a
	// peering.
	RemoteClusterIDLabel = "liqo.io/remote-cluster-id"

	// TypeLabel with the value VirtualNodeType marks a Node as virtual.
	TypeLabel = "liqo.io/type"
	// VirtualNodeType is the value of TypeLabel.
	VirtualNodeType = "virtual-node"

	// AutoscalerTypeLabel with the value AutoscalerType makes cluster autoscalers ignore the node.
	AutoscalerTypeLabel = "type"
	// AutoscalerType is the value of AutoscalerTypeLabel.
	AutoscalerType = "virtual-kubelet"

	// VirtualNodeTaint, with the value VirtualNodeTaintValue and the effect NoExecute, keeps pods without a
	// toleration away from virtual nodes.
	VirtualNodeTaint = "virtual-node.liqo.io/not-allowed"
	// VirtualNodeTaintValue is the value of VirtualNodeTaint.
	VirtualNodeTaintValue = "true"

	// StorageAvailableLabel shows whether the node offers storage classes.
	StorageAvailableLabel = "storage.liqo.io/available"

	// ProviderVersionLabel is the version that the provider's API server reports, with "_" instead of "+".
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

// Names on VirtualNodes and on the Deployments of their virtual kubelets.
const (
	// VirtualNodeFinalizer keeps a VirtualNode until its node is drained. Liqo's controllers set and remove it.
	// Refract's controllers do not.
	VirtualNodeFinalizer = "virtualnode-controller.liqo.io/finalizer"
	// VirtualNodeLabel on a virtual kubelet is the name of the VirtualNode.
	VirtualNodeLabel = "liqo.io/virtual-node"
	// ComponentLabel is the component of a pod of the installation.
	ComponentLabel = "offloading.liqo.io/component"
	// VirtualKubeletComponent is the value of ComponentLabel on virtual kubelets.
	VirtualKubeletComponent = "virtual-kubelet"
	// SharedLease is the Lease in the tenant namespace for which all virtual nodes of a provider compete. Its holder
	// reflects the objects that belong to the provider as a whole.
	SharedLease = "virtual-kubelet-leader-election"
	// KubeconfigSecretKey is the key of the provider's kubeconfig in the Secret that a VirtualNode names.
	KubeconfigSecretKey = "kubeconfig"
)

// PermanentlyUnreachableAnnotation ("true") on a ForeignCluster declares that the cluster will never be reachable
// again.
const PermanentlyUnreachableAnnotation = "liqo.io/foreign-cluster-permanently-unreachable"

// PluginsConfigMapAnnotation on a VkOptionsTemplate is the name of a ConfigMap in the namespace of each virtual
// kubelet. Its binaryData contains plugin modules for the virtual kubelet, whose pods do not start without the
// ConfigMap.
const PluginsConfigMapAnnotation = "plugins.refract.io/plugins-configmap"

// TemplateHashAnnotation on the Deployment of a virtual kubelet is a hash of the desired Deployment.
const TemplateHashAnnotation = "plugins.refract.io/template-hash"

// TemplateAnnotation on the Deployment of a virtual kubelet names the VkOptionsTemplate from which the Deployment was
// generated, and its generation: "liqo/virtual-kubelet-default@3".
const TemplateAnnotation = "plugins.refract.io/template"

// AddressesAnnotation with the value "false" on a VirtualNode makes its virtual kubelet show no addresses of the
// provider, because they cannot be reached.
const AddressesAnnotation = "plugins.refract.io/reflect-addresses"

// RangesAnnotation on a VirtualNode contains the address ranges of the provider's pods and load balancers, as CIDRs
// separated by commas. Addresses outside of these ranges are not shown.
const RangesAnnotation = "plugins.refract.io/provider-cidrs"

// OverlappingRangesAnnotation ("true") on a PeerNetwork records that the clusters were joined although address ranges
// overlap, because a network between them translates addresses.
const OverlappingRangesAnnotation = "plugins.refract.io/overlapping-ranges"

// DeclaredRangesAnnotation on a PeerNetwork lists the sides whose pod ranges were declared manually: "local" and
// "remote", separated by a comma. On other sides, the ranges come from the nodes.
const DeclaredRangesAnnotation = "plugins.refract.io/declared-ranges"

// APIServerURLAnnotation on the Secret with the kubeconfig of a provider contains the address of the provider's API
// server, if the address was declared manually.
const APIServerURLAnnotation = "plugins.refract.io/api-server-url"

// FormerImageAnnotation on a VirtualNode or a VkOptionsTemplate is the image of the virtual kubelet before refractctl
// liqo adopt.
const FormerImageAnnotation = "plugins.refract.io/former-image"

// AdoptedImageAnnotation on a VkOptionsTemplate is the image that refractctl liqo adopt has set.
const AdoptedImageAnnotation = "plugins.refract.io/adopted-image"

// DrainAnnotation with the value "true" on a VirtualNode makes a controller cordon and drain its Node. This lasts
// until the annotation is removed and the Node is uncordoned.
const DrainAnnotation = "plugins.refract.io/drain"

// NetworkStatusAnnotation (Established, Pending or Error) on a ForeignCluster is set by the operator of a network
// fabric. It reports whether addresses on the provider can be reached.
const NetworkStatusAnnotation = "plugins.refract.io/network-status"

// NetworkProbeAnnotation on a ForeignCluster is an address on the provider that shows whether the network between the
// clusters works: tcp://HOST:PORT, or an http or https URL. Like the API server, it is probed from this cluster.
const NetworkProbeAnnotation = "plugins.refract.io/network-probe"
