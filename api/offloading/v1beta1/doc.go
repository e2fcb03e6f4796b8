// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 holds the types of the group offloading.liqo.io: what one cluster runs on another.
//
// On the consumer a VirtualNode stands for a share of a provider, and a
// NamespaceOffloading offloads a namespace onto such nodes. A NamespaceMap
// carries the request "this namespace of mine is that one of yours" to the
// provider and the answer back. In the remote namespaces of the provider a
// ShadowPod and a ShadowEndpointSlice say what must exist there, and keep
// saying it while the consumer is away. A Quota (what a consumer may ask for)
// and a VkOptionsTemplate (how virtual kubelets are run) are here so that
// objects of an existing installation stay valid; nothing of ours reads them
// yet.
//
// The group, version, kinds and JSON names are Liqo's, so that either side of
// a peering may be either implementation. Where an object embeds another
// kind's spec (a pod, endpoints, a Deployment) the CRD stores it without a
// schema: a field that is newer than this package survives.
//
// +kubebuilder:object:generate=true
// +groupName=offloading.liqo.io
package v1beta1
