// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package api and its subpackages have the types and names that two clusters, and the two implementations, share.
// They have no logic.
//
//   - core/v1beta1: the state of a peered cluster (ForeignCluster).
//   - offloading/v1beta1: what one cluster runs on the other (VirtualNode, NamespaceOffloading, NamespaceMap,
//     ShadowPod, ShadowEndpointSlice, Quota, VkOptionsTemplate).
//   - plugins/v1alpha1: Refract's additions (ReflectedResource, PeerNetwork).
//   - wire: labels, annotations, taints, finalizers, field managers and reasons on other objects.
//   - crds: the CustomResourceDefinitions, generated from the types and embedded.
//
// Groups, versions, kinds, JSON names, defaults and short names are those of Liqo v1beta1, so that consumer and
// provider may each run either implementation. There are two deliberate differences. First, where an object embeds
// the spec of another kind, the CRD has no schema for it: a pod field of the next Kubernetes release survives, and
// the CRD of ShadowPods is 3 KB instead of hundreds. The cost is that the API server accepts a malformed pod, so
// clients must read those kinds unstructured. Second, Liqo's webhook checks of a NamespaceOffloading are CEL rules in
// its CRD, which the API server enforces even if no process of Refract runs.
//
// These packages import only k8s.io/api and k8s.io/apimachinery.
package api
