// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package failure classifies reconciliation errors. The class of an error determines how reflection continues, and the
// reason and the remedy in the Event.
package failure
