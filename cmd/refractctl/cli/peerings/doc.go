// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package peerings implements the commands that peer clusters and end peerings, generate kubeconfigs for peering, and
// connect and test the networks of peered clusters.
package peerings
