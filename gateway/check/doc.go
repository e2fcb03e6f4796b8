// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package check finds out whether the gateway of a peer answers through the tunnel.
//
// The gateways exchange pings in the format of Liqo: JSON in UDP datagrams. The receiver returns a ping as it is, except for
// its type. Ours have one more field. Liqo loses it, so an answer with the field comes from Refract; such peers are pinged
// more often, and a loss is found within a second instead of ten.
//
// A State is fed with the times of pings and answers, and has no clock of its own. All times are of this gateway: the clocks
// of two clusters need not agree, and may be set while the gateway runs.
package check
