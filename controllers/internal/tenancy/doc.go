// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenancy restricts what consumers, which are tenants of this cluster, may run in it.
//
// A consumer writes ShadowPods freely, and the controllers create pods from them with their own permissions. So this
// package checks a pod against the limits of the provider: the Pod Security level of its namespace, the nodes that it
// selects and tolerates, its classes, volumes and credentials, and labels and annotations that components of the
// cluster trust. The API server checks the same pods again, by the label of the namespace and by the chart's
// admission policies.
package tenancy
