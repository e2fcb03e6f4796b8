// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package network tests the network between clusters on real kernels. Each host is a network namespace. Gateways and
// agents are processes that the tests kill and restart. The tests need root permissions (see package netlab).
package network
