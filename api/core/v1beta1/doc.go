// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 holds the types of the group core.liqo.io: how this cluster sees another one.
//
// ForeignCluster is the summary of a peer: which role it plays, which modules
// connect it, whether its API server answers. The group, version, kinds and
// JSON names are Liqo's, so that either side of a peering may be either
// implementation.
//
// +kubebuilder:object:generate=true
// +groupName=core.liqo.io
package v1beta1
