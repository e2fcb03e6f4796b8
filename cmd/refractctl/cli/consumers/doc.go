// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package consumers implements the commands about the consumers of this cluster and what they may use: Tenants,
// ResourceSlices, and the exchange of manifests as in liqoctl.
package consumers
