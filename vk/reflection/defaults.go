// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
)

// The names of the kinds that have rules of their own.
const (
	PodKind           = "Pod"
	ServiceKind       = "Service"
	IngressKind       = "Ingress"
	ConfigMapKind     = "ConfigMap"
	SecretKind        = "Secret"
	ClaimKind         = "PersistentVolumeClaim"
	EndpointSliceKind = "EndpointSlice"
	// ServiceAccountKind is the tokens of the pods of this node: see token.go.
	ServiceAccountKind = "ServiceAccount"
	EventKind          = "Event"
)

var (
	podsResource           = corev1.SchemeGroupVersion.WithResource("pods")
	servicesResource       = corev1.SchemeGroupVersion.WithResource("services")
	nodesResource          = corev1.SchemeGroupVersion.WithResource("nodes")
	configMapsResource     = corev1.SchemeGroupVersion.WithResource("configmaps")
	secretsResource        = corev1.SchemeGroupVersion.WithResource("secrets")
	claimsResource         = corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims")
	volumesResource        = corev1.SchemeGroupVersion.WithResource("persistentvolumes")
	storageClassesResource = schema.GroupVersionResource{Group: "storage.k8s.io", Version: "v1", Resource: "storageclasses"}
	ingressesResource      = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}
	eventsResource         = corev1.SchemeGroupVersion.WithResource("events")
	endpointSlicesResource = schema.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"}
	ipsResource            = schema.GroupVersionResource{Group: "ipam.liqo.io", Version: "v1alpha1", Resource: "ips"}
)

// DefaultKinds returns what is reflected without being asked for.
func DefaultKinds() []Kind {
	return []Kind{
		{
			Name: PodKind, Source: podsResource,
			Target: offloadingv1beta1.ShadowPodGVR, TargetKind: offloadingv1beta1.GroupVersion.WithKind(offloadingv1beta1.ShadowPodKind),
			Mode: Replace, Policy: Always, Workers: 10, Payload: "spec", Into: []string{"spec", "pod"},
			DropLabels: []string{wire.OffloadedPodLabel, wire.RemoteUnavailableLabel}, DropAnnotations: []string{RestartsAnnotation, GatesAnnotation, RemoteGatesAnnotation},
			KeepLabels: []string{wire.CreatorUserLabel}, PerNode: true,
		},
		{
			Name: ServiceKind, Source: servicesResource, Policy: DenyList, Workers: 3,
			StatusBack: true, StatusSubresource: true, StatusFields: []string{"loadBalancer"},
			Never: func(o *unstructured.Unstructured) bool { return isAPIServer(o.GetNamespace(), o.GetName()) },
		},
		{
			Name: IngressKind, Source: ingressesResource, Policy: DenyList, Workers: 3,
			StatusBack: true, StatusSubresource: true, StatusFields: []string{"loadBalancer"},
		},
		{
			Name: ConfigMapKind, Source: configMapsResource, Policy: DenyList, Workers: 3,
			// The provider has its own of that name, and offloaded pods need ours whatever the policy.
			Rename: renameRootCA, Unless: func(name string) bool { return name == wire.RootCAConfigMap },
		},
		{
			Name: SecretKind, Source: secretsResource, Policy: DenyList, Workers: 3, Confidential: true,
			// Those of the pods' tokens are the business of another kind.
			Except: "!" + wire.ServiceAccountNameLabel,
		},
		{
			Name: ServiceAccountKind, Source: podsResource,
			Target: secretsResource, TargetKind: corev1.SchemeGroupVersion.WithKind("Secret"),
			Policy: Always, Workers: 3, Suffix: wire.TokenSecretSuffix, Except: wire.ServiceAccountNameLabel,
			FailureReason: wire.FailedTokensReason, PerNode: true, NoChain: true,
		},
		{
			Name: ClaimKind, Source: claimsResource, Policy: Always, Workers: 3,
			// Whose status it is need not be noted: the volume of the claim says it.
			FollowsNodes: true, FixedSpec: true, StatusBack: true, StatusSubresource: true,
		},
		{
			Name: EndpointSliceKind, Source: endpointSlicesResource,
			Target: offloadingv1beta1.ShadowEndpointSliceGVR, TargetKind: offloadingv1beta1.GroupVersion.WithKind(offloadingv1beta1.ShadowEndpointSliceKind),
			Mode: Replace, Policy: DenyList, Workers: 10, Into: []string{"spec", "template"},
			Labels: map[string]string{wire.EndpointSliceManagedByLabel: wire.EndpointSliceManager},
			Never: func(o *unstructured.Unstructured) bool {
				return isAPIServer(o.GetNamespace(), o.GetName()) || isAPIServer(o.GetNamespace(), serviceOf(o))
			},
			// The default plugin skips slices without endpoints for the provider: most are, at some time of their life.
			FollowsService: true, FollowsNetwork: true, RoutineSkipper: "endpointslice",
		},
		{
			Name: EventKind, Source: eventsResource, Mode: Replace, Policy: DenyList, Workers: 3, Reverse: true,
		},
	}
}

// isAPIServer tells the Service of this cluster's own API server: the provider has its own of that name.
func isAPIServer(namespace, name string) bool { return namespace == "default" && name == "kubernetes" }

func renameRootCA(localClusterID string) map[string]string {
	return map[string]string{wire.RootCAConfigMap: wire.RemoteRootCAConfigMap(localClusterID)}
}
