// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package tenancy restricts the pods that consumers, the tenants of this cluster, may run.
//
// A consumer can write any ShadowPod, and the controllers create pods from ShadowPods with their own permissions.
// Therefore this package checks each pod against the limits that the provider sets: the Pod Security level of its
// namespace, the nodes that it selects and tolerates, its classes, volumes and credentials, and the labels and
// annotations that components of the cluster trust. The API server checks the pods again, with Pod Security admission
// and the chart's admission policies.
package tenancy
