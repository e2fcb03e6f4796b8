// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package vk is the virtual kubelet: one process per provider that makes another cluster look like a node of this one.
//
// It has four parts, which cmd/virtual-kubelet wires together:
//
//   - vk/node keeps the Node object: what the provider offers (from the VirtualNode), whether it answers, the lease.
//   - vk/reflection carries objects across: pods, Services, EndpointSlices and whatever else is configured, each bent by
//     its chain of WebAssembly plugins, and brings the status of the provider's pods back.
//   - vk/namespaces tells it which namespaces are extended, and under which name the provider knows them.
//   - vk/kubeletapi answers what the API server asks a kubelet (logs, exec, attach, port-forward) from the provider.
//
// A fifth, vk/resources, has the second carry further kinds, those that ReflectedResources name, while it runs.
//
// Two small ones hold pure functions: vk/pods (the life of an offloaded pod) and vk/ipmap (addresses that look
// different from the other side).
//
// A pod's way: the scheduler binds it to the virtual node; reflection sees it, runs the chain and creates a ShadowPod on
// the provider; the provider's controller makes the pod and keeps it, also while this side is down; its status comes
// back through the chain onto the first pod. When that is deleted the ShadowPod goes, and the pod itself is let go
// once the provider's is gone.
//
// The process holds no state of its own. After a restart it reads both sides, compares and, when nothing changed in
// between, writes nothing.
package vk
