// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package vk is the virtual kubelet: one process per virtual node that presents another cluster as a node of this
// one.
//
// It has five parts, which package app assembles:
//
//   - vk/node maintains the Node object: the resources of the provider (from the VirtualNode), its availability, the
//     lease.
//   - vk/reflection reflects objects: pods, the tokens of their service accounts, their claims, Services,
//     EndpointSlices, Ingresses, NetworkPolicies, PodDisruptionBudgets, ConfigMaps and Secrets. All except tokens are
//     mutated by a chain of WebAssembly plugins. Statuses and the provider's Events are reflected back.
//   - vk/resources adds the kinds of ReflectedResources at run time.
//   - vk/namespaces tracks the offloaded namespaces and the names of their remote namespaces.
//   - vk/kubeletapi serves the kubelet API (logs, exec, attach, port-forward) from the provider.
//
// Two small packages of pure functions are shared with the controllers: vk/pods (the lifecycle of an offloaded pod) and
// internal/ipmap (address translation).
//
// The lifecycle of a pod: the scheduler binds it to the virtual node; reflection runs the chain and creates a
// ShadowPod on the provider; the provider's controller creates the pod and maintains it, even while this cluster is
// unavailable; its status is mutated by the chain and written to the local pod. When the local pod is deleted, the
// ShadowPod is deleted, and the local pod is removed once the provider's is gone.
//
// The process is stateless. After a restart it reads both sides, compares them and, if nothing changed in between,
// writes nothing.
package vk
