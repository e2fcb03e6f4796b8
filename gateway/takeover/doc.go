// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package takeover decides which pod of a gateway is active.
//
// The pods of a gateway share one key. One of them holds a Lease, and its address is status.internalEndpoint of the gateway, to which
// nodes send their packets. The Lease changes only when another pod takes over, and is never renewed. All other pods probe the holder
// with UDP packets, and one of them takes over when the holder does not answer, or says that it is leaving. Probes and answers are
// authenticated with a key that is derived from the private key of the gateway.
//
// An Election is the state of one pod, without sockets and clocks. A Member runs it. Neither knows the API server: cmd/gateway reads and
// writes the Lease and the status.
package takeover
