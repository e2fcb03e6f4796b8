// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package onepass makes a manager decode unstructured objects in one pass (see package dynamicclient), both in the
// watches of its cache and in the responses to its client. Without this package each object is parsed up to nine
// times, a quarter of the controllers' work for an offloaded pod.
package onepass
