// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package node maintains the Node that represents a provider cluster.
//
// It observes the VirtualNode resource (resources, labels and taints of the node), the ForeignCluster (the state of
// the network between the clusters), and a ping of the provider's API server, and maintains one Node:
//
//	VirtualNode ─┐
//	ForeignCluster ─┼─▶ desired Node ─▶ node controller of the virtual-kubelet
//	ping ─┘                             library: registration, status, lease
//
// The desired Node is computed by pure functions (Identity.desiredNode, health.nodeConditions); Controller compares
// it with the Node in its cache and writes only the differences. If another client changes a field that the
// Controller maintains, the change is reverted. Labels, taints and conditions of other clients are kept. Settings of
// a VirtualNode that are not valid in a Node are ignored and reported by Config.Warn. A Node that does not belong to
// this virtual node is left unchanged, and is also reported.
//
// An unresponsive provider never ends the process. The Node becomes Ready=False, with the reason, a few seconds after
// the first lost ping, and Ready=True with the first successful ping. The lease is renewed all the time, because it
// shows that the virtual kubelet itself is alive. This is also how a kubelet behaves while its container runtime is
// down.
package node
