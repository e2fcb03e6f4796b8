// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package app implements the commands of the gateway and of the agent on a node: their flags, and the objects that they
// read.
//
//	NewCommand ─▶ run, agent ─▶ objects (caches) ─▶ peering or host: the inputs of package gateway ─▶ gateway.RunGateway, gateway.RunAgent
//
// Nothing is applied before the caches are filled. Otherwise peers whose objects are not known yet would be removed.
// The agent writes nothing to the API server. A gateway writes Events and its Connection (connectionKeeper).
package app
