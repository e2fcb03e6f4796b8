// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package resources makes the virtual kubelet reflect the resources of ReflectedResources at run time.
//
// A [Follower] watches the ReflectedResources of this cluster. For each it determines, in this order,
//
//   - what the resource is in both clusters (discover.go), after copying its CustomResourceDefinition to the provider
//     if requested (definition.go),
//   - whether this virtual kubelet may read it in every offloaded namespace and write it in the remote namespaces
//     (permissions.go),
//
// and has the [Engine] start, change or stop the reflection (engine.go). The result becomes the condition Ready in
// the entry of this virtual node in the object's status (status.go). The condition reports problems with the remedy:
// for a missing permission the RBAC rule, and the role and cluster to add it to.
//
// # When it reconciles again
//
// After a change of the object; when a definition is created, changed or deleted, in clusters where definitions can
// be watched; when a namespace is offloaded; and, while something is missing, after 5 s to 2 min. No restart is ever
// needed.
//
// # When in doubt
//
// An unresponsive provider or a revoked permission does not change a running reflection: it continues when the
// problem is solved. A reflection stops when the resource is no longer served, when it is paused, and when its
// ReflectedResource is deleted. In none of these cases is anything removed from the provider.
package resources
