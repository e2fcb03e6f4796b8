// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package install implements the commands that install and uninstall Refract.
package install
