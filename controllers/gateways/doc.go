// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package gateways runs the gateways of the network between the clusters.
//
// A GatewayServer or a GatewayClient in the tenant namespace of a peer names a template. Templates of this installation contain a
// Deployment (those of Liqo contain other objects, and are left to Liqo). The controller completes it for the peer and creates
// what it needs: keys, a ServiceAccount with its permissions, a disruption budget, and for a server the Service that the
// peer connects to. It publishes in the status where the peer finds the server, and in which Secret the keys are.
//
// The pods themselves elect the active one (package takeover), so that this works while the controller manager is down.
// The Service has no selector, because its only endpoint is the active pod, which writes the EndpointSlice itself.
//
// The controller manager can create keys, but not read them: a Secret that exists is used, whatever it contains. New keys are made only if
// no pod of the gateway runs with the old ones, because with other keys the connection ends until the peer has the public key.
//
// Peers, or liqoctl on their behalf, write GatewayServers and GatewayClients. So the templates must be in the namespace
// of the installation, the labels of the tenant namespace determine the peer of the gateway, and only one gateway of a
// tenant namespace runs.
package gateways
