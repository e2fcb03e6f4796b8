// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package failure classifies reconciliation errors. The class determines how reflection continues, the reason of the
// Event, and the remedy.
package failure
