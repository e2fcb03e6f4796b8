// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package pods has the logic that is specific to offloaded pods, as pure functions over unstructured values: the status
// of a pod that is refused or lost, restart counts across recreated pods, the conditions written in this cluster
// (readiness gates, evictions), and the mutable fields of a running pod's spec. The reflection engine decides when each
// applies.
//
// No function modifies its arguments: they come from informer caches.
package pods
