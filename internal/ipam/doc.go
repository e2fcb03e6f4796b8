// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package ipam decides which address ranges this cluster uses for the networks of other clusters.
//
// If no range of this cluster overlaps a range of another cluster, this cluster uses the range unchanged. Otherwise it
// uses another range of the same size. The host bits of an address stay the same, so one rule translates a whole
// network. FindRange finds a free range in the pools. FindAddress finds a free address in a range.
//
// The functions are pure. The state is in API objects, and the caller passes the ranges and addresses that are in use.
// The results are the same as the results of Liqo's allocator after a start with the same objects, so that one
// implementation can replace the other at any time. `make test-liqo` compares them. Ranges that Liqo does not know
// (nodes, Services, tunnels) are passed like any other range in use.
package ipam
