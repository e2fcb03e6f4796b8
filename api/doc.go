// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package api and those below it are what two clusters, and the two implementations, agree on: types and words, no logic.
//
//   - core/v1beta1: how a cluster sees another one (ForeignCluster).
//   - offloading/v1beta1: what one runs on the other (VirtualNode, NamespaceOffloading, NamespaceMap, ShadowPod,
//     ShadowEndpointSlice, Quota, VkOptionsTemplate).
//   - plugins/v1alpha1: what Refract adds (ReflectedResource).
//   - wire: labels, annotations, taints, finalizers, field managers and reasons on everybody's objects.
//   - crds: the CustomResourceDefinitions, generated from the types and embedded.
//
// Groups, versions, kinds, JSON names, defaults and short names are those of Liqo v1beta1, so that consumer and provider
// may each run either implementation. Two things differ, both on purpose. Where an object embeds the spec of another kind
// the CRD has no schema for it: a pod field of the next Kubernetes release survives, and the CRD of ShadowPods is 3 KB
// instead of hundreds. The price is that the API server accepts a malformed pod there, so whoever watches those kinds
// reads them unstructured. And what Liqo checks of a NamespaceOffloading in a webhook is checked by CEL rules in its CRD,
// which hold also when nothing of ours runs.
//
// Everything here imports k8s.io/api and k8s.io/apimachinery only.
package api
