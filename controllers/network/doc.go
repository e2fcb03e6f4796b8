// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package network determines the ranges that this cluster uses to reach the pods of a peer.
//
// The peer's administrator, or liqoctl, writes the peer's ranges to a Configuration in the peer's tenant namespace. The
// controller checks these ranges, and creates a Network to request a corresponding range in this cluster for each of
// them. Package addresses grants the ranges, and this controller publishes them in the status of the Configuration. If
// a range would redirect the traffic of this cluster or of its hosts, the Configuration is refused: nothing is changed,
// and the condition NetworkCIDRsConfigured contains the range and the remedy.
package network
