// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package app is the process of a virtual kubelet: its command and flags, the ways to both clusters, the election, and what the
// replica that leads runs.
//
//	NewCommand ─▶ run: servers, election ─▶ activate: plugins, reflection, node, kubelet API ─▶ run until the lease or the process ends
package app
