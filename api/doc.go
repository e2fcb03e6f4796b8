// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package api and its subpackages define the types and names that are shared between clusters, and between the two
// implementations, Refract and Liqo. They contain no logic.
//
//   - core/v1beta1: the state of a peered cluster (ForeignCluster).
//   - offloading/v1beta1: the resources that one cluster uses on another (VirtualNode, NamespaceOffloading,
//     NamespaceMap, ShadowPod, ShadowEndpointSlice, Quota, VkOptionsTemplate).
//   - networking/v1beta1: the network between two clusters (Configuration, Connection, GatewayServer, GatewayClient,
//     PublicKey, WgGatewayServerTemplate, WgGatewayClientTemplate).
//   - ipam/v1alpha1: the addresses of that network (Network, IP).
//   - plugins/v1alpha1: Refract's additions (ReflectedResource, PeerNetwork).
//   - wire: the labels, annotations, taints, finalizers, field managers and reasons used on objects of other kinds.
//   - crds: the CustomResourceDefinitions, generated from the types and embedded.
//
// Groups, versions, kinds, JSON names, defaults and short names are those of Liqo v1beta1, so that the consumer and the
// provider can each run either implementation. There are two deliberate differences. First, if an object embeds the
// spec of another kind, the CRD has no schema for that spec. Pod fields added by newer Kubernetes releases are
// therefore preserved, and the ShadowPod CRD is 3 KB in size instead of hundreds. The disadvantage is that the API
// server accepts malformed specs, so clients must read these kinds as unstructured objects. Second, the
// NamespaceOffloading CRD has CEL rules that replace the checks of Liqo's webhook. The API server enforces them even
// when no Refract process is running.
//
// These packages import only k8s.io/api and k8s.io/apimachinery.
package api
