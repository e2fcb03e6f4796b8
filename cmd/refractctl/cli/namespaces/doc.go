// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package namespaces implements the commands that offload namespaces and stop offloading them.
package namespaces
