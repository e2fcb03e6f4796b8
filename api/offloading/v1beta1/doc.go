// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 has the types of the group offloading.liqo.io: the resources that one cluster uses on another.
//
// On the consumer, a VirtualNode represents resources of a provider, and a NamespaceOffloading offloads a namespace
// to such nodes. A NamespaceMap has the requests for remote namespaces and the provider's responses. In the remote
// namespaces of the provider, a ShadowPod and a ShadowEndpointSlice declare the pods and endpoints that the provider
// maintains, even while the consumer is unavailable. A Quota limits the resources of a consumer, and a
// VkOptionsTemplate configures virtual kubelets.
//
// The group, version, kinds and JSON names are Liqo's, so that either side of a peering may run either
// implementation. If an object embeds the spec of another kind (a pod, endpoints, a Deployment), the CRD stores this
// spec without a schema, so that fields that are newer than this package are preserved.
//
// +kubebuilder:object:generate=true
// +groupName=offloading.liqo.io
package v1beta1
