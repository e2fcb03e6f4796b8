// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package gateway carries packets between the pods of two clusters.
//
// RunGateway runs in the pod of a gateway, of which each peering has its own. RunAgent runs on each node, in the
// network namespace of the host. Both receive the objects that they need whenever these change, compile them into a
// whole desired configuration (package desired), and keep the kernel's configuration equal to it (packages netstate and
// tunnel). They neither read nor write objects. This is done by cmd/gateway.
//
// A gateway may have several pods, of which one is active. They elect it with package takeover.
package gateway
