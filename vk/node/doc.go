// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package node keeps the Node that stands for a provider cluster.
//
// Three observations go in: the VirtualNode resource (how big the node is, how
// it is labelled and tainted), the ForeignCluster (is the network between the
// clusters up), and a ping of the provider's API server. One Node comes out:
//
//	VirtualNode ─┐
//	ForeignCluster ─┼─▶ desired Node ─▶ node controller of the virtual-kubelet
//	ping ─┘                             library: registration, status, lease
//
// What the Node should be is computed by pure functions (Identity.desired,
// health.conditions); Controller observes, compares with the Node in its cache and
// writes only what differs. Someone else's change of what belongs to us is
// undone; what others add (labels, taints, conditions) stays. What a VirtualNode
// says that no Node can be is left out and reported by Config.Warn; a Node that is
// not ours, or another provider's, is left alone and reported, too.
//
// A provider that does not answer never ends the process. The Node says
// Ready=False with the reason a few seconds after the first lost ping, and
// Ready=True with the first answered one. The lease is renewed all the time,
// because it shows that the virtual kubelet is alive, as with a real kubelet
// whose container runtime is down.
package node
