// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package peering joins two clusters and ends their peering, with the permissions of the user who runs it.
//
// The consumer gets an identity on the provider, credentials for it, and a virtual node. The provider gets a tenant
// namespace for the consumer, with the roles that the consumer needs and with its Quota. The controllers create
// everything else with their own permissions.
//
// On a provider that runs Liqo, the package creates the objects that Liqo's own consumers create: Tenant,
// ResourceSlice and Renew.
//
// Options are the settings of the user. A run first inspects both clusters (pair), adds the settings of an existing
// peering (terms), and checks the result. After that, a joining or a leaving writes to the clusters and records the
// objects that it writes.
//
// Everything is checked before anything is changed. Every step is idempotent: an interrupted run continues when the
// command is run again. Objects that neither this package nor the controllers created are never changed, and are
// deleted only with the tenant namespace that contains them.
package peering
