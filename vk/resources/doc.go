// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package resources makes the virtual kubelet reflect the resources of ReflectedResources at run time.
//
// A [Follower] watches the ReflectedResources of this cluster. For each of them it determines, in this order:
//
//   - how both clusters serve the resource (discover.go), after copying its CustomResourceDefinition to the provider
//     if requested (definition.go),
//   - whether this virtual kubelet may read it in every offloaded namespace and write it in the remote namespaces
//     (permissions.go),
//
// Then it makes the [Engine] start, change or stop the reflection (engine.go). The result becomes the condition Ready
// in the entry of this virtual node in the object's status (status.go). The condition reports problems with the
// remedy: for a missing permission the RBAC rule, and the role and cluster to add it to.
//
// # When it reconciles again
//
// A ReflectedResource is reconciled when it changes, when the offloaded namespaces change, and, where definitions may
// be watched, when a definition is created, changed or deleted. While a requirement is missing, it is also reconciled
// after 5 s to 2 min. A restart is never needed.
//
// # When in doubt
//
// An unresponsive provider or a revoked permission does not stop a running reflection, which continues when the
// problem is solved. The reflection stops if the resource is no longer served, if it is paused, or if its
// ReflectedResource is deleted. In all of these cases, the objects on the provider stay.
package resources
