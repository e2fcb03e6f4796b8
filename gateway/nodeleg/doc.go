// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodeleg finds out which nodes and gateways of a cluster reach each other through VXLAN.
//
// The agent of each node sends a request to the active pod of each gateway, through the VXLAN device (Prober). The pod
// answers with a random token (Responder), and the next request repeats the token. A gateway counts a node as reached
// only when it receives its last token again, because then packets pass in both directions. A node counts a gateway as
// reached when it receives an answer.
//
// Requests go to the address of the pod, and answers to the address of the node, but both are sent to the VXLAN device
// and not by the routes of the host. No address exists for this purpose, and packets of others do not take this path.
package nodeleg
