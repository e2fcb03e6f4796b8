// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package netstate applies a desired network configuration to a host or a pod: links, routes, policy rules, neighbours
// and one nftables table.
//
// A State is a value without references to the kernel, so that it can be compiled, compared and printed in tests. Apply
// reads the kernel's state, writes the differences, and reads again until there are none. If there are no differences,
// nothing is written, so a restart of the process does not affect connections and counters. Keep repeats this whenever
// the desired State changes, and whenever the kernel reports that another process has changed something within the
// Scope.
//
// The Scope describes what belongs to the process. Objects within the Scope that are not in the State are removed, and
// all other objects are left alone. An empty State removes everything within the Scope.
//
// The kernel is configured only through netlink. The process and its container need only the capability NET_ADMIN. They
// need neither a writable /proc/sys nor binaries such as ip or nft.
package netstate
