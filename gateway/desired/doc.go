// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package desired compiles the objects of the API into the network configuration of a gateway and of a node.
//
// A packet to a peer takes this way, and the answer takes it back:
//
//	pod → node ══ VXLAN ══> gateway ══ WireGuard ══> gateway ══ VXLAN ══> node → pod
//
// The node sends packets for the ranges of a peer to the peer's gateway (NodeCompiler). The gateway replaces the destination
// by the address that the peer itself uses, and sends the packet through the tunnel. On the way back it replaces the source
// (CompileGateway). Each cluster translates the addresses of the other one, and never its own, so the tunnel has the true
// addresses of both. Both clusters may use the same ranges: the link on which a packet arrives decides what its addresses
// mean.
//
// Nothing here reads or changes the kernel. The same complete objects give the same result, in every process and after every
// restart. An error means that objects are incomplete or refused: the earlier result then stays applied. For a single peer of a
// node, NodeCompiler remembers it.
package desired
