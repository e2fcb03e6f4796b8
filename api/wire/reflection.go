// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Labels and annotations of every reflected object. An object is ours only
// when both labels are there and name this pair of clusters; anything else of
// the same name is foreign and is never overwritten.
const (
	// OriginLabel holds the id of the cluster where the object comes from.
	OriginLabel = "offloading.liqo.io/origin"
	// DestinationLabel holds the id of the cluster where it was sent to.
	DestinationLabel = "offloading.liqo.io/destination"
	// NodeNameLabel holds the virtual node (its name on the origin) to which a
	// ShadowPod, its pod, or a token Secret belongs.
	NodeNameLabel = "offloading.liqo.io/nodename"
)

// Annotations for users on an object, or on the Service of an EndpointSlice, to
// choose whether it crosses. Presence counts; the value "false" in any case
// takes it back.
const (
	// SkipReflectionAnnotation excludes the object from reflection (policy DenyList).
	SkipReflectionAnnotation = "liqo.io/skip-reflection"
	// AllowReflectionAnnotation lets the object cross (policy AllowList).
	AllowReflectionAnnotation = "liqo.io/allow-reflection"
)

// Labels and annotations for the manager of an object of the provider.
const (
	// ManagedByLabel is on what the shadow controllers create.
	ManagedByLabel = "liqo.io/managed-by"
	// ManagedByShadowPod is its value on pods.
	ManagedByShadowPod = "shadowpod"
	// ManagedByShadowEndpointSlice is its value on EndpointSlices.
	ManagedByShadowEndpointSlice = "shadowendpointslice"

	// EndpointSliceManagedByLabel is the Kubernetes label that keeps the
	// EndpointSlice controller away from slices of others.
	EndpointSliceManagedByLabel = "endpointslice.kubernetes.io/managed-by"
	// EndpointSliceManager is its value on reflected slices, on both sides.
	EndpointSliceManager = "endpointslice.reflection.liqo.io"
	// RemoteTargetKindPrefix is put before the kind of a reflected endpoint's
	// targetRef: the object is not in the cluster where the endpoint is read.
	RemoteTargetKindPrefix = "Remote"
)

// The service-account tokens of an offloaded pod, carried by a Secret.
const (
	// TokenSecretSuffix follows the name of the pod in that of the Secret.
	TokenSecretSuffix = "-token"
	// ServiceAccountNameLabel names the ServiceAccount of the tokens.
	ServiceAccountNameLabel = "offloading.liqo.io/service-account-name"
	// ServiceAccountPodNameAnnotation names the pod they are bound to.
	ServiceAccountPodNameAnnotation = "offloading.liqo.io/service-account-for-pod-name"
	// ServiceAccountPodUIDAnnotation holds the uid of that pod.
	ServiceAccountPodUIDAnnotation = "offloading.liqo.io/service-account-for-pod-uid"
	// ServiceAccountExpirationAnnotation is when the first of them expires (RFC 3339).
	ServiceAccountExpirationAnnotation = "offloading.liqo.io/service-account-expiration"

	// TokenServiceAccountLabel names the ServiceAccount whose token a Secret
	// holds: Kubernetes has it as an annotation of Secrets of the type
	// kubernetes.io/service-account-token, and their copies on the provider,
	// which are of the type Opaque, have it as a label too.
	TokenServiceAccountLabel = "kubernetes.io/service-account.name"
)

// Field managers of server-side apply. Liqo's names are kept, so that a copy
// changes hands between the implementations without conflicts.
const (
	// ReflectionFieldManager writes what the virtual kubelet reflects.
	ReflectionFieldManager = "reflection.liqo.io"
	// ShadowPodFieldManager writes the pods of ShadowPods.
	ShadowPodFieldManager = "shadow-pod"
	// ShadowEndpointSliceFieldManager writes the EndpointSlices of ShadowEndpointSlices.
	ShadowEndpointSliceFieldManager = "shadow-endpointslice-controller"
)

// ReflectionLabels returns the labels of an object that crosses from origin
// to destination, as a new map.
func ReflectionLabels(origin, destination string) map[string]string {
	return map[string]string{OriginLabel: origin, DestinationLabel: destination}
}
