// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package lab joins two real control planes on loopback the way an operator
// joins two clusters, and runs Refract's own commands between them: what the
// demo shows, what the benchmarks measure and what end-to-end tests break.
//
// Up starts the clusters, "home" (the consumer) and "cloud" (the provider),
// installs CRDs and roles, and gives each of our processes an identity of its
// own with exactly the roles that the Helm chart ships (package rbac): none
// is a cluster administrator. The commands are built from this checkout and
// run as processes, so that they can be killed. The scheduling webhook is one of
// them, too: the API server calls the controller manager on loopback.
//
// Everything in a Lab ends with the process that made it, however that ends.
package lab
