// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package cmdutil contains the common parts of all commands: structured logs, the version, metrics and health
// endpoints, and shutdown.
package cmdutil
