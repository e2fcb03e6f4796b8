// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package tunnel configures the WireGuard device between two gateways.
//
// The device is the kernel's where the kernel has WireGuard, and otherwise a TUN device with wireguard-go in this process.
// Both have the same methods. Apply compares the device with the desired configuration and sends only the differences: peers
// are changed, and never replaced, because a peer that is replaced loses its session and its last endpoint.
//
// A device survives the process. The kernel's goes on with its sessions. A TUN device keeps its addresses and routes, so that the
// next process needs a handshake and nothing else.
package tunnel
