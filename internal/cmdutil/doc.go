// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package cmdutil contains what all commands have in common: structured logs, the version, metrics and health
// endpoints, and shutdown.
package cmdutil
