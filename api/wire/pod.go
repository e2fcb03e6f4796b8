// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Labels and annotations of an offloaded pod on the consumer.
const (
	// OffloadedPodLabel ("true") is on the consumer's pod, and not on the ShadowPod.
	OffloadedPodLabel = "liqo.io/shadowPod"
	// RemoteUnavailableLabel ("true") is on pods whose virtual node is not ready.
	RemoteUnavailableLabel = "liqo.io/remote-unavailable"
	// CreatorUserLabel is the name of the user who has created a ShadowPod, with every character outside
	// [A-Za-z0-9_.-] replaced by a dash.
	CreatorUserLabel = "liqo.io/creator-user"
)

// Annotations with which users determine how a pod is reflected.
const (
	// AntiAffinityPresetAnnotation spreads offloaded pods over the provider's nodes. Its values follow.
	AntiAffinityPresetAnnotation = "liqo.io/anti-affinity-preset"
	// AntiAffinityPropagate keeps the pod's own anti-affinity.
	AntiAffinityPropagate = "propagate"
	// AntiAffinitySoft prefers different nodes.
	AntiAffinitySoft = "soft"
	// AntiAffinityHard requires different nodes.
	AntiAffinityHard = "hard"
	// AntiAffinityLabelsAnnotation lists label keys, separated by commas. With the presets soft and hard, these
	// labels determine which pods are kept apart.
	AntiAffinityLabelsAnnotation = "liqo.io/anti-affinity-labels"

	// APIServerSupportAnnotation selects the API server that the pod uses.
	APIServerSupportAnnotation = "liqo.io/api-server-support"
	// APIServerSupportRemote means that the pod uses the provider's API server.
	APIServerSupportRemote = "remote"
	// APIServerSupportDisabled means that the pod does not use an API server.
	APIServerSupportDisabled = "disabled"
	// RemoteServiceAccountNameAnnotation is the name of the provider's ServiceAccount that the pod uses in the mode
	// APIServerSupportRemote.
	RemoteServiceAccountNameAnnotation = "liqo.io/remote-service-account-name"

	// DownwardAPIAnnotation selects the cluster whose namespace and UID of the pod the downward API provides. By
	// default, this is the consumer.
	DownwardAPIAnnotation = "plugins.refract.io/downward-api"
	// DownwardAPIRemote selects the provider. This is useful because the provider's DNS knows only the remote
	// namespace.
	DownwardAPIRemote = "remote"

	// HostNamespacesAnnotation permits the offloading of a pod with hostNetwork, hostPID or hostIPC. Without the
	// annotation, the pod is rejected.
	HostNamespacesAnnotation = "plugins.refract.io/host-namespaces"
	// HostNamespacesDrop means that the offloaded pod has its own namespaces instead of the host's.
	HostNamespacesDrop = "drop"
	// HostNamespacesKeep means that the offloaded pod keeps hostPID and hostIPC, if the provider permits this to the
	// consumer.
	HostNamespacesKeep = "keep"

	// RemoteRuntimeClassNameAnnotation is the name of the pod's runtime class on the provider.
	RemoteRuntimeClassNameAnnotation = "liqo.io/remote-runtime-class-name"
	// RuntimeClassName is the runtime class with which users select virtual nodes for a pod. It is not reflected to
	// the provider.
	RuntimeClassName = "liqo"
)

// Annotations of ShadowPods and their pods to which volumes with the downward API refer.
const (
	// OriginUIDAnnotation is the UID of the consumer's pod. It distinguishes a later pod of the same name, for
	// example of a StatefulSet, which must not show the termination of the first pod. On copies of other kinds that
	// are written by server-side apply, it is the UID of the local object.
	OriginUIDAnnotation = "plugins.refract.io/origin-uid"
	// OriginNamespaceAnnotation is the namespace of the consumer's pod.
	OriginNamespaceAnnotation = "plugins.refract.io/origin-namespace"
)

// ShadowPodGenerationAnnotation on a provider's pod is the generation of the ShadowPod whose spec the pod has. It is
// missing if this is the first generation.
const ShadowPodGenerationAnnotation = "controllers.refract.io/shadowpod-generation"

// Names with which a network reports the address of this cluster's API server. The IP resource with the address at
// which providers reach the API server is in the namespace of the installation. It has the label, or the label's
// value as its name.
const (
	IPTypeLabel = "ipam.liqo.io/ip-type"
	APIServerIP = "api-server"
)

// Values of the label on the Network resources that declare the address ranges of their own cluster.
const (
	NetworkTypeLabel = "ipam.liqo.io/network-type"
	PodNetwork       = "pod-cidr"
	ServiceNetwork   = "service-cidr"
	ExternalNetwork  = "external-cidr"
)

// Labels of Networks, with the value true.
const (
	// NetworkNotRemappedLabel means that the Network gets the requested range or none.
	NetworkNotRemappedLabel = "ipam.liqo.io/network-not-remapped"
	// NetworkSharedLabel, together with NetworkNotRemappedLabel, means that the range may overlap the ranges of other
	// Networks with both labels.
	NetworkSharedLabel = "ipam.liqo.io/network-shared"
)

// Labels of Configurations, and of the Networks that request ranges for them.
const (
	// ConfiguredLabel has the value true on a Configuration if all its ranges are granted.
	ConfiguredLabel = "configuration.liqo.io/configured"
	// CIDRTypeLabel contains the use of the range in the peer: pod or external.
	CIDRTypeLabel = "configuration.liqo.io/cidr-type"
)

// Reasons in the status of a pod that was not offloaded, or whose offloading has ended early.
const (
	// OffloadingBackOffReason means that the pod was not started. It is started when its namespace is offloaded,
	// and the provider accepts it.
	OffloadingBackOffReason = "OffloadingBackOff"
	// OffloadingAbortedReason means that the pod was offloaded, but its namespace is no longer offloaded, or the
	// provider has lost the pod and rejects it now.
	OffloadingAbortedReason = "OffloadingAborted"
	// RemotePodTerminatedReason means that the pod has ended and the provider's pod no longer exists.
	RemotePodTerminatedReason = "RemotePodTerminated"
)

// RootCAConfigMap is the ConfigMap that Kubernetes creates in every namespace. Its copy on the provider has another
// name, because the provider has its own ConfigMap of this name.
const RootCAConfigMap = "kube-root-ca.crt"

// RemoteRootCAConfigMap returns the name of the copy of RootCAConfigMap. It contains the first five characters of the
// consumer's cluster ID.
func RemoteRootCAConfigMap(localClusterID string) string {
	const significant = 5
	name := RootCAConfigMap + "." + localClusterID[:min(len(localClusterID), significant)]
	if last := name[len(name)-1]; last == '.' || last == '-' {
		name += "a" // A name must end with a letter or a digit.
	}
	return name
}
