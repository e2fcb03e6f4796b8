// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package release installs Refract from the embedded chart, and inspects existing installations.
//
// An installation is a Helm release, which helm can show, upgrade and remove. In addition to Helm, this package
// upgrades CRDs, and refuses to remove anything while something is offloaded.
package release
