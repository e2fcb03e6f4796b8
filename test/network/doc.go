// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package network tests the network between clusters on real kernels: each host is a network namespace, and gateways and agents are
// processes that are killed and started again. The tests need root; see package netlab.
package network
