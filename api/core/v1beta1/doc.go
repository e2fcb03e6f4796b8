// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 has the types of the group core.liqo.io: the state of peered clusters.
//
// ForeignCluster summarizes a peer: its role, the modules that connect it, and whether its API server is available.
// The group, version, kinds and JSON names are Liqo's, so that either side of a peering may run either
// implementation.
//
// +kubebuilder:object:generate=true
// +groupName=core.liqo.io
package v1beta1
