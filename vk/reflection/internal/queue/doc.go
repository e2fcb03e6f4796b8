// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package queue contains the objects of a kind that are waiting for a worker, for a retry, for the provider, or for
// other objects whose copies must be up to date first.
package queue
