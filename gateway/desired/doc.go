// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package desired compiles API objects into the network configurations of gateways and nodes.
//
// A packet to a peer takes this path, and the response takes the reverse path:
//
//	pod → node ══ VXLAN ══> gateway ══ WireGuard ══> gateway ══ VXLAN ══> node → pod
//
// A node sends packets for the ranges of a peer to the gateway for this peer (NodeCompiler). The gateway replaces the
// destination by the address that the peer itself uses, and sends the packet through the tunnel. In packets from the
// peer, it replaces the source (CompileGateway). Each cluster translates only the addresses of the other cluster, so
// packets in the tunnel have the true addresses of both. Both clusters may use the same ranges: the link on which a
// packet arrives determines the meaning of its addresses.
//
// This package neither reads nor changes the kernel's configuration. The same complete objects give the same result, in
// every process and after every restart. An error means that objects are incomplete or refused. The earlier result then
// remains applied. For the peers of a node, NodeCompiler remembers the earlier results.
package desired
