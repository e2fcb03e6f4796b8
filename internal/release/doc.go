// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package release installs Refract in a cluster, from the chart that is embedded in this program, and finds out how it is installed.
//
// An installation is a Helm release, which helm shows, upgrades and removes as any other. What Helm does not do is done here: CRDs are
// upgraded, too, and nothing is removed while something is offloaded.
package release
