// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package addresses grants ranges to Networks, and addresses to IPs.
//
// The status of these objects is the only record: no memory must agree with it, and what Liqo's IPAM has granted stays as it is. One
// worker grants, in passes over all objects. A pass reads them from the API server, not from a cache, and decides in one function
// without side effects (plan.go). After it has written its grants, it reads all objects again, and takes back each of its own that
// overlaps another (confirm.go). So nothing stays granted twice, even if a controller manager that has lost its lease writes at the same
// time: of two that write, at least the later one reads the grant of the other. If it ends before, the next pass writes an Event.
//
// A grant never changes while its object exists, even if a node later gets an address within the range.
package addresses
