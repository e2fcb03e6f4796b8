// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package vk is the virtual kubelet: one process per provider that makes another cluster look like a node of this one.
//
// It has five parts, which package app wires together:
//
//   - vk/node keeps the Node object: what the provider offers (from the VirtualNode), whether it answers, the lease.
//   - vk/reflection carries objects across: pods, the tokens of their service accounts, their claims, Services,
//     EndpointSlices, Ingresses, ConfigMaps and Secrets, each but the tokens mutated by its chain of WebAssembly plugins.
//     It brings statuses and the provider's Events back.
//   - vk/resources has it carry further kinds, those that ReflectedResources name, while it runs.
//   - vk/namespaces notifies it which namespaces are offloaded, and under which name the provider knows them.
//   - vk/kubeletapi answers what the API server asks a kubelet (logs, exec, attach, port-forward) from the provider.
//
// Two small ones hold pure functions: vk/pods (the life of an offloaded pod) and internal/ipmap (addresses that look
// different from the other side), which the controllers use too.
//
// A pod's way: the scheduler binds it to the virtual node; reflection sees it, runs the chain and creates a ShadowPod on
// the provider; the provider's controller makes the pod and keeps it, also while this side is down; its status comes
// back through the chain onto the first pod. When that is deleted the ShadowPod goes, and the pod itself is let go
// once the provider's is gone.
//
// The process holds no state of its own. After a restart it reads both sides, compares and, when nothing changed in
// between, writes nothing.
package vk
