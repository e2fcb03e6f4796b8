// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package content handles the content of an object: it defines which fields are reflected, computes their hashes,
// selects what the caches keep, and truncates or translates a provider's values before they are written to this
// cluster.
package content
