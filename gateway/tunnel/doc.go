// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package tunnel configures the WireGuard device between two gateways.
//
// If the kernel supports WireGuard, the device is a kernel device. Otherwise it is a TUN device with wireguard-go in
// this process. Both have the same methods. Apply compares the device with the desired configuration and sends only the
// differences. It updates existing peers instead of replacing them, because a replaced peer loses its session and its
// current endpoint.
//
// A device outlives the process. A kernel device continues its sessions. A TUN device keeps its addresses and routes,
// so that the next process only needs a new handshake.
package tunnel
