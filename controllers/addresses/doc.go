// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package addresses grants ranges to Networks, and addresses to IPs.
//
// The status of these objects is the only record of the grants. There is no state in memory that could differ from it,
// and grants by Liqo's IPAM are kept. A single worker makes passes over all objects. A pass reads the objects from the
// API server instead of a cache, and decides in a pure function (plan.go). After it has written its grants, it reads
// all objects again, and revokes each of its grants that overlaps another one (confirm.go). Therefore nothing stays
// granted twice, even if a controller manager that has lost its lease writes at the same time: of two writers, at least
// the later one reads the grant of the other. If it ends before it has revoked its grant, the next pass writes an
// Event.
//
// A grant never changes while its object exists, even if a node later gets an address within the range.
package addresses
