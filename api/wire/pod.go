// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Labels and annotations of an offloaded pod on the consumer.
const (
	// OffloadedPodLabel ("true") is on the consumer's pod, not on ShadowPods.
	OffloadedPodLabel = "liqo.io/shadowPod"
	// RemoteUnavailableLabel ("true") is on pods whose virtual node is not ready.
	RemoteUnavailableLabel = "liqo.io/remote-unavailable"
	// CreatorUserLabel is the creator of a ShadowPod: the user name with
	// every character outside [A-Za-z0-9_.-] replaced by a dash.
	CreatorUserLabel = "liqo.io/creator-user"
)

// Annotations for users on a pod, to change how it is reflected.
const (
	// AntiAffinityPresetAnnotation spreads offloaded pods over the provider's
	// nodes: see the values below.
	AntiAffinityPresetAnnotation = "liqo.io/anti-affinity-preset"
	// AntiAffinityPropagate keeps the pod's own anti-affinity.
	AntiAffinityPropagate = "propagate"
	// AntiAffinitySoft prefers different nodes.
	AntiAffinitySoft = "soft"
	// AntiAffinityHard requires different nodes.
	AntiAffinityHard = "hard"
	// AntiAffinityLabelsAnnotation lists, separated by commas, the keys of the
	// labels by which soft and hard recognise the pods to keep apart.
	AntiAffinityLabelsAnnotation = "liqo.io/anti-affinity-labels"

	// APIServerSupportAnnotation selects the API server that the pod uses.
	APIServerSupportAnnotation = "liqo.io/api-server-support"
	// APIServerSupportRemote is that of the provider.
	APIServerSupportRemote = "remote"
	// APIServerSupportDisabled is none.
	APIServerSupportDisabled = "disabled"
	// RemoteServiceAccountNameAnnotation names the provider's ServiceAccount
	// with which the pod runs in the mode APIServerSupportRemote.
	RemoteServiceAccountNameAnnotation = "liqo.io/remote-service-account-name"

	// DownwardAPIAnnotation selects the cluster of which the pod's namespace and UID
	// are that the downward API gives, by default the consumer.
	DownwardAPIAnnotation = "plugins.refract.io/downward-api"
	// DownwardAPIRemote is the provider: its DNS knows the remote namespace.
	DownwardAPIRemote = "remote"

	// HostNamespacesAnnotation is for a pod with hostNetwork, hostPID or hostIPC, which
	// is refused otherwise.
	HostNamespacesAnnotation = "plugins.refract.io/host-namespaces"
	// HostNamespacesDrop: the offloaded pod has namespaces of its own instead.
	HostNamespacesDrop = "drop"
	// HostNamespacesKeep: the offloaded pod has hostPID and hostIPC, if the provider allows that to the consumer.
	HostNamespacesKeep = "keep"

	// RemoteRuntimeClassNameAnnotation names the pod's runtime class on the provider.
	RemoteRuntimeClassNameAnnotation = "liqo.io/remote-runtime-class-name"
	// RuntimeClassName is the runtime class with which users send a pod to
	// virtual nodes; it means nothing to the provider.
	RuntimeClassName = "liqo"
)

// Annotations of ShadowPods and their pods, that volumes with the downward API
// refer to.
const (
	// OriginUIDAnnotation is the UID of the pod that they represent: a pod of the same
	// name that came later (a StatefulSet's, say) is another one, and must not be shown
	// the end of the first. On copies of other kinds that are applied it is the UID of
	// their object.
	OriginUIDAnnotation = "plugins.refract.io/origin-uid"
	// OriginNamespaceAnnotation is the namespace of that pod.
	OriginNamespaceAnnotation = "plugins.refract.io/origin-namespace"
)

// ShadowPodGenerationAnnotation is on a provider's pod that was not made from the
// first generation of its ShadowPod: the generation whose spec it has.
const ShadowPodGenerationAnnotation = "controllers.refract.io/shadowpod-generation"

// Conventions of the network for this cluster's API server: the IP object, in the
// namespace of the installation, with the address by which providers reach it
// has the label, or simply its value as its name.
const (
	IPTypeLabel = "ipam.liqo.io/ip-type"
	APIServerIP = "api-server"
)

// Networks of Liqo that declare the ranges of their own cluster, by the value of the label.
const (
	NetworkTypeLabel = "ipam.liqo.io/network-type"
	PodNetwork       = "pod-cidr"
	ServiceNetwork   = "service-cidr"
)

// Reasons in the status of a pod that was not offloaded, or not to the end.
const (
	// OffloadingBackOffReason: not started; it will be when its namespace is offloaded.
	OffloadingBackOffReason = "OffloadingBackOff"
	// OffloadingAbortedReason: it ran, and its namespace is no longer offloaded, or the provider has lost it and refuses to run it again.
	OffloadingAbortedReason = "OffloadingAborted"
	// RemotePodTerminatedReason: it finished and the provider's pod is gone.
	RemotePodTerminatedReason = "RemotePodTerminated"
)

// RootCAConfigMap is the ConfigMap that Kubernetes puts into every namespace.
// Its copy on the provider is renamed, because the provider has its own.
const RootCAConfigMap = "kube-root-ca.crt"

// RemoteRootCAConfigMap is the name of that copy: the first five characters of
// the consumer's cluster id are appended.
func RemoteRootCAConfigMap(localClusterID string) string {
	const significant = 5
	name := RootCAConfigMap + "." + localClusterID[:min(len(localClusterID), significant)]
	if last := name[len(name)-1]; last == '.' || last == '-' {
		name += "a" // a name ends with a letter or a digit
	}
	return name
}
