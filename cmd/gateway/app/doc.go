// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package app implements the commands of the gateway and of the agent on a node: their flags, and the objects that they
// read.
//
//	NewCommand ─▶ run, agent ─▶ objects (caches) ─▶ peering or host: the inputs of package gateway ─▶ gateway.RunGateway, gateway.RunAgent
//
// The caches are filled before anything is applied, so that a peer is never removed because its objects are not known yet. The agent writes
// nothing to the API server. A gateway writes Events and its Connection (connectionKeeper). If it has several pods, they write a Lease and
// the address of the active pod (elector), and the EndpointSlice of their Service (sliceKeeper).
package app
