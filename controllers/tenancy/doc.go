// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenancy says what consumers, which are tenants of this cluster, may run in it.
//
// A consumer writes ShadowPods as it likes; the controllers here create pods of them with rights of their own. So it is here
// that a pod is held to what the provider allows: the Pod Security level of its namespace, no choice of a node, no priority
// that displaces the provider's own workloads. The API server holds the same pods to the Pod Security level once more, by the
// label of the namespace, and to the chart's admission policies.
package tenancy
