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
// The desired Node is computed by pure functions (Identity.desiredNode, health.nodeConditions); Controller observes, compares
// with the Node in its cache and writes only differences. Changes of fields that belong to us are reverted; labels,
// taints and conditions of others are kept. Settings of a VirtualNode that are invalid for a Node are ignored and
// reported by Config.Warn; a Node that is not ours, or another provider's, is left unchanged and reported, too.
//
// An unresponsive provider never ends the process. The Node becomes Ready=False with the reason a few seconds after
// the first lost ping, and Ready=True with the first successful one. The lease is renewed all the time, because it
// shows that the virtual kubelet is alive, like a kubelet whose container runtime is down.
package node
