// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package gateways connects the networks of two clusters through gateways, for the commands of refractctl.
//
// Each cluster has objects for its peer in the tenant namespace of the peer: a Configuration with the ranges of the
// peer, a GatewayServer or a GatewayClient, and the PublicKey of the peer's gateway. The objects and their names are
// those of liqoctl, so either cluster may run Liqo, and either tool may continue where the other one has ended. The
// controllers of each cluster run its gateway and make its keys. Private keys are neither read nor transferred.
package gateways
