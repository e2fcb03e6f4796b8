// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package gateway carries packets between the pods of two clusters.
//
// RunGateway runs in a gateway pod. Each peering has its own gateway. RunAgent runs on each node, in the network
// namespace of the host. Both receive the API objects that they need whenever one of these changes, compile them into a
// complete desired configuration (package desired), and apply it to the kernel and keep it applied (packages netstate
// and tunnel). They do not access the API server; cmd/gateway reads the objects.
package gateway
