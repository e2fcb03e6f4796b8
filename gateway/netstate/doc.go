// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package netstate brings the network configuration of a host or a pod to a desired state: links, routes, policy rules,
// neighbours and one nftables table.
//
// A State is a value without references to the kernel, so that it can be compiled, compared and printed in tests. Apply
// reads what the kernel has, writes the difference, and reads again until there is none. If nothing differs, nothing is
// written: a restarted process leaves connections and counters alone. Keep repeats this whenever the state changes and
// whenever the kernel reports that somebody else has changed something within the Scope.
//
// The Scope lists what belongs to the process. Everything in it that is not in the State is removed, and nothing else
// is touched. An empty State removes everything.
//
// The kernel is configured by netlink alone. Neither the process nor its container needs more than the capability
// NET_ADMIN: no writable /proc/sys, and no binaries such as ip or nft.
package netstate
