// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package onepass makes a manager decode unstructured objects in one pass (see package dynamicclient). This applies to
// the watches of its cache and to the responses to its client. Without this package, each object is parsed up to nine
// times, which takes a quarter of the controllers' CPU time for an offloaded pod.
package onepass
