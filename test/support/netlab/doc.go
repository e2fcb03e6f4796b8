// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package netlab builds networks of Linux network namespaces for tests: hosts that are connected with cables. Each host
// has its own links, routes, rules and nftables, and none of them can reach the machine or the internet.
//
// It needs the capability CAP_SYS_ADMIN to create namespaces. Without this capability, tests are skipped, or fail if
// the environment variable REFRACT_NODES is set. Tests on real nodes do the same.
package netlab
