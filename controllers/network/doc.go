// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package network decides which ranges this cluster uses to reach the pods of a peer.
//
// The peer's administrator, or liqoctl, writes the peer's ranges into a Configuration in the peer's tenant namespace. The controller
// checks them, asks for a range of this cluster for each with a Network (package addresses grants it), and publishes the grants in the
// status. Ranges that would take the traffic of this cluster or of its hosts are refused: nothing changes then, and the condition
// NetworkCIDRsConfigured has the range and the remedy.
package network
