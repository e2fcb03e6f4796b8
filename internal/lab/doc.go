// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package lab joins two real control planes on loopback like an operator joins two clusters, and runs Refract's own
// commands between them, for the demo, benchmarks and end-to-end tests.
//
// Up starts the clusters, "home" (the consumer) and "cloud" (the provider), installs CRDs and roles, and gives each
// of our processes its own identity with exactly the roles of the Helm chart (package rbac). None of them is a
// cluster administrator. The commands are built from this checkout and run as processes, so that they can be killed.
// This includes the scheduling webhook: the API server calls the controller manager on loopback.
//
// All processes and files of a Lab are removed with the process that created it, even if that process is killed.
package lab
