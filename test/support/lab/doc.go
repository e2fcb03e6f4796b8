// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package lab joins two real control planes on the loopback interface in the same way as an administrator, and runs
// Refract's programs for them. The demo, the benchmarks and end-to-end tests use it.
//
// Up starts the clusters, "home" (the consumer) and "cloud" (the provider), installs CRDs and roles, and gives each
// of Refract's processes its own identity with exactly the roles of the Helm chart (package rbac). No process has the
// permissions of an administrator. The programs are built from this checkout and run as processes, so that they can
// be killed. This includes the scheduling webhook: the API server calls the controller manager on loopback.
//
// When the process that created a Lab ends, even if it is killed, all processes and files of the Lab are removed.
package lab
