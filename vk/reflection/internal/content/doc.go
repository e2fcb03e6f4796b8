// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package content processes the content of objects. It defines which fields are reflected, computes their hashes, and
// selects what the caches keep. Before a provider's values are written to this cluster, it truncates or translates
// them.
package content
