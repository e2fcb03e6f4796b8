// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package onepass makes a manager decode unstructured objects in one pass (see package dynamicclient), both in the
// watches of its cache and in the responses to its client. By default each object is read up to nine times, which would
// be a quarter of the controllers' work for an offloaded pod.
package onepass
