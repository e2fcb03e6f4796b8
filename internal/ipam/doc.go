// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package ipam decides which address ranges this cluster uses for the networks of other clusters.
//
// A range of another cluster is kept if no range of this cluster overlaps it. Otherwise another range of the same
// size replaces it. The host bits stay, so one rule translates a whole network. FindRange searches the pools,
// FindAddress the addresses of one range.
//
// The functions are pure: the state is in the objects of the API, and the caller passes the ranges and addresses in
// use. The results are those of Liqo's allocator after a start with the same objects, so that the two implementations
// can replace each other at any time; `make test-liqo` compares them. Ranges that Liqo does not know (nodes,
// Services, tunnels) are passed like any other range in use.
package ipam
