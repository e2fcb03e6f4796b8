// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package app is the process of a virtual kubelet: its command and flags, the connections to both clusters, the
// election, and the work of the leading replica.
//
//	NewCommand ─▶ runKubelet: servers, election ─▶ newActive, startParts: plugins, reflection ─▶ runLeader: node, kubelet API, … until the lease or the process ends
//
// While another replica leads, a standby replica also runs newActive and startParts, but its reflection only fills
// the caches.
package app
