// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package vk is the virtual kubelet: a process that presents another cluster as a node of this cluster. There is one
// process for each virtual node.
//
// It has seven parts, which package app assembles:
//
//   - vk/node maintains the Node object: the resources of the provider (from the VirtualNode), its availability, the
//     lease.
//   - vk/reflection reflects objects: pods, the tokens of their service accounts, their claims, Services,
//     EndpointSlices, Ingresses, NetworkPolicies, PodDisruptionBudgets, ConfigMaps and Secrets. All except tokens are
//     mutated by a chain of WebAssembly plugins. Statuses and the provider's Events are reflected back.
//   - vk/resources adds kinds to reflection at run time, as declared by ReflectedResources.
//   - vk/declared runs the plugins of ReflectionPlugins.
//   - vk/namespaces tracks the offloaded namespaces and the names of their remote namespaces.
//   - vk/heartbeat renews a Lease on the provider, which shows that this cluster is available.
//   - vk/kubeletapi serves the kubelet API (logs, exec, attach, port-forward) from the provider.
//
// Addresses are translated by internal/ipmap, which the controller manager uses, too.
//
// The lifecycle of a pod: The scheduler binds the pod to the virtual node. Reflection runs the plugin chain and
// creates a ShadowPod on the provider. The provider's controller creates a pod from it and maintains this pod, even
// while this cluster is unavailable. The status of the provider's pod is mutated by the chain and written to the
// local pod. When the local pod is deleted, the ShadowPod is deleted, and the local pod is removed when the
// provider's pod no longer exists.
//
// The process is stateless. After a restart it reads the objects in both clusters and compares them. If nothing has
// changed in between, reflection writes nothing.
package vk
