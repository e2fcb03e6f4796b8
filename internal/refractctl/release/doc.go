// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package release installs Refract from the embedded chart, and inspects existing installations.
//
// An installation is a Helm release, so helm can show, upgrade and remove it. Beyond what Helm does, this package
// upgrades CRDs, and refuses to remove an installation while anything is offloaded.
package release
