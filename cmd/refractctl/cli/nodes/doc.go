// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package nodes implements the commands that create, cordon, drain and delete virtual nodes.
package nodes
