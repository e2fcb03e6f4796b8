// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package pods holds what is special to the life of an offloaded pod, as pure functions over unstructured values:
// the status of a pod that is refused or lost, the restarts that a re-created pod must not forget, the conditions
// that somebody here writes (readiness gates, evictions), and the few fields of a running pod's spec that may still change. The reflection engine decides
// when each applies.
//
// No function modifies its arguments: they come from informer caches.
package pods
