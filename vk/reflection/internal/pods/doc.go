// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package pods contains logic that is specific to offloaded pods, as pure functions of unstructured values. They
// compute the status of a pod that is rejected or lost, the restart counts of a pod whose remote pod is recreated,
// conditions that are written in this cluster (readiness gates, evictions), and the mutable fields of the spec. The
// reflection engine decides when to call these functions.
//
// The functions do not modify their arguments, because these come from informer caches.
package pods
