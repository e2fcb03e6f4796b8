// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package network tests the network between clusters on real kernels. Each host is a network namespace. Gateways and
// agents are processes that the tests kill and restart. The tests need root permissions (see package netlab).
//
// TestCosts measures what the network costs, compared with plain WireGuard over the same hops. `make bench-network` runs it
// for longer, and prints a table of figures with their goals.
package network
