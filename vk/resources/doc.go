// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package resources makes the virtual kubelet reflect what ReflectedResources ask for, while it runs.
//
// A [Follower] watches the ReflectedResources of this cluster. For each it finds out, in this order,
//
//   - what the resource is in both clusters (discover.go), where asked to after it has taken its
//     CustomResourceDefinition to the provider (definition.go),
//   - whether this virtual kubelet may read it in every offloaded namespace and write it in the remote namespaces (permissions.go),
//
// and has the [Engine] begin, change or end the reflection (engine.go). What it found becomes the condition Ready in the
// entry of this virtual node in the object's status (status.go). Whatever is missing is said there with the remedy: for a
// permission the very rule of RBAC, and the role of which cluster it belongs to.
//
// # When it reconciles again
//
// After a change of the object; when a definition appears, changes or goes, in the clusters that let us watch those; when
// a namespace is offloaded; and, while something is missing, after 5 s to 2 min. No restart is ever needed.
//
// # On doubt
//
// A provider that does not answer, and a permission that is gone, change nothing about a reflection that runs: it goes on
// when the trouble is over. It ends when the resource is not served any more, when it is paused, and when its
// ReflectedResource is deleted. In none of these cases is anything removed from the provider.
package resources
