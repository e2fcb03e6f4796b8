// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package onepass makes a manager read unstructured objects in one pass, see
// package dynamicclient: those that its cache watches, and what its client is
// answered. Usually each is read up to nine times, which would be a quarter of
// what the controllers do for an offloaded pod.
package onepass
