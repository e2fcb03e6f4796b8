// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package peering joins two clusters, and parts them, with the rights of whoever runs it.
//
// The consumer gets an identity at the provider, a certificate that the provider signs, and a virtual node. The provider gets a
// tenant namespace for the consumer with the roles that it needs, and the quota that it is held to. The controllers do the rest; they need
// nobody's rights but their own.
//
// A provider that runs Liqo is asked for the same as Liqo's own consumers ask for it, with Tenant, ResourceSlice and Renew.
//
// Everything is checked before anything is changed. Every step can be repeated: what was interrupted goes on when it is run again. What
// this package has not made it neither changes nor deletes.
package peering
