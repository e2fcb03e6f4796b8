// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package peering joins two clusters and ends their peering, with the permissions of the user who runs it.
//
// The consumer gets an identity on the provider, credentials for it, and a virtual node. The provider gets a tenant
// namespace for the consumer with the roles that the consumer needs, and its Quota. The controllers do the rest with
// their own permissions.
//
// On a provider that runs Liqo, the package creates the objects that Liqo's own consumers create: Tenant,
// ResourceSlice and Renew.
//
// Everything is checked before anything is changed. Every step is idempotent: an interrupted run continues when the
// command is run again. Objects that this package did not create are never changed or deleted.
package peering
