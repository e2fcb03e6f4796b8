// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package takeover decides which pod of a gateway is active.
//
// The pods of a gateway share one key. One pod holds a Lease. Its address is the endpoint in the status of the gateway,
// where nodes send their packets. The Lease changes only when another pod takes over, and is never renewed. All other
// pods probe the holder with UDP packets. One of them takes over when the holder does not answer, or announces its end.
// Probes and answers are authenticated with a key that is derived from the private key of the gateway.
//
// An Election is the state of one pod, without sockets and clocks. A Member runs it. Neither knows the API server: cmd/gateway reads and
// writes the Lease and the status.
package takeover
