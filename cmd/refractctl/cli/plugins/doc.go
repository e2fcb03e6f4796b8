// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugins implements the commands that show, approve and roll back declared plugins, and those that try out modules
// without a cluster.
package plugins
