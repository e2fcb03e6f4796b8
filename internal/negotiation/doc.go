// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package negotiation is how a virtual node follows what its provider offers, in the status of a ResourceSlice.
//
// Whoever creates the VirtualNode notes in its annotations what was asked for, and which fields of its spec follow the provider: those that
// no flag has set. A field that somebody else has written since, by hand or with another tool, is theirs: managedFields say so. A provider
// is not trusted: what it offers is checked before it is used.
package negotiation
