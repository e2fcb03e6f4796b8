// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wire

// Labels and annotations of every reflected object. An object belongs to reflection only if it has both labels and
// they name this pair of clusters. Any other object of the same name is foreign, and is never overwritten.
const (
	// OriginLabel is the ID of the cluster from which the object was reflected.
	OriginLabel = "offloading.liqo.io/origin"
	// DestinationLabel is the ID of the cluster to which the object was reflected.
	DestinationLabel = "offloading.liqo.io/destination"
	// NodeNameLabel is the name, on the origin, of the virtual node to which a ShadowPod, its pod, or a Secret with
	// tokens belongs.
	NodeNameLabel = "offloading.liqo.io/nodename"
)

// Annotations with which users determine whether an object is reflected. They can be on the object, or on the Service
// of an EndpointSlice. The value is "true" or "false", in upper or lower case, or empty, which means true.
const (
	// SkipReflectionAnnotation excludes an object from reflection (policy DenyList).
	SkipReflectionAnnotation = "liqo.io/skip-reflection"
	// AllowReflectionAnnotation permits the reflection of an object (policy AllowList).
	AllowReflectionAnnotation = "liqo.io/allow-reflection"
)

// Labels and annotations that name the manager of an object on the provider.
const (
	// ManagedByLabel is on objects that the shadow controllers create.
	ManagedByLabel = "liqo.io/managed-by"
	// ManagedByShadowPod is the value of ManagedByLabel on pods.
	ManagedByShadowPod = "shadowpod"
	// ManagedByShadowEndpointSlice is the value of ManagedByLabel on EndpointSlices.
	ManagedByShadowEndpointSlice = "shadowendpointslice"

	// EndpointSliceManagedByLabel is the label of Kubernetes that makes the EndpointSlice controller ignore slices
	// with another manager.
	EndpointSliceManagedByLabel = "endpointslice.kubernetes.io/managed-by"
	// EndpointSliceManager is the value of EndpointSliceManagedByLabel on reflected slices, on both sides.
	EndpointSliceManager = "endpointslice.reflection.liqo.io"
	// RemoteTargetKindPrefix is prepended to the kind in the targetRef of a reflected endpoint, because the object
	// does not exist in the cluster that reads the endpoint.
	RemoteTargetKindPrefix = "Remote"
)

// Names on the Secret with the service account tokens of an offloaded pod.
const (
	// TokenSecretSuffix is appended to the name of the pod to form the name of the Secret.
	TokenSecretSuffix = "-token"
	// ServiceAccountNameLabel is the name of the ServiceAccount to which the tokens belong.
	ServiceAccountNameLabel = "offloading.liqo.io/service-account-name"
	// ServiceAccountPodNameAnnotation is the name of the pod to which the tokens are bound.
	ServiceAccountPodNameAnnotation = "offloading.liqo.io/service-account-for-pod-name"
	// ServiceAccountPodUIDAnnotation is the UID of the pod to which the tokens are bound.
	ServiceAccountPodUIDAnnotation = "offloading.liqo.io/service-account-for-pod-uid"
	// ServiceAccountExpirationAnnotation is the time at which the first token expires (RFC 3339).
	ServiceAccountExpirationAnnotation = "offloading.liqo.io/service-account-expiration"

	// TokenServiceAccountLabel is the name of the ServiceAccount whose token a Secret contains. Kubernetes uses the
	// key as an annotation of Secrets of the type kubernetes.io/service-account-token. Their copies on the provider,
	// which have the type Opaque, also have it as a label.
	TokenServiceAccountLabel = "kubernetes.io/service-account.name"
)

// Field managers of server-side apply. They have the same names as in Liqo, so that one implementation can take over
// a copy from the other without conflicts.
const (
	// ReflectionFieldManager writes the objects that the virtual kubelet reflects.
	ReflectionFieldManager = "reflection.liqo.io"
	// ShadowPodFieldManager writes the pods of ShadowPods.
	ShadowPodFieldManager = "shadow-pod"
	// ShadowEndpointSliceFieldManager writes the EndpointSlices of ShadowEndpointSlices.
	ShadowEndpointSliceFieldManager = "shadow-endpointslice-controller"
)

// ReflectionLabels returns a new map with the labels of an object that is reflected from origin to destination.
func ReflectionLabels(origin, destination string) map[string]string {
	return map[string]string{OriginLabel: origin, DestinationLabel: destination}
}
