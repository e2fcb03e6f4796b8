// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package check finds out whether the gateway of a peer answers through the tunnel.
//
// Gateways exchange pings in Liqo's format, which is JSON in UDP datagrams. The receiver of a ping sends it back with
// another type. Refract's pings have an additional field. Liqo drops this field, so only Refract's answers contain it.
// Peers that run Refract are pinged more often, so that a loss is detected within a second instead of ten.
//
// Between gateways of Refract, pings of different sizes find the largest packets that pass (PathMTU). Their answers are short,
// so that each gateway measures its own direction.
//
// A State has no clock. The caller passes the times of pings and answers. All times are read from the clock of this
// gateway, so the clocks of the two clusters may differ, and may be adjusted while the gateway runs.
package check
