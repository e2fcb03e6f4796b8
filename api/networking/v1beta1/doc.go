// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 has the types of the group networking.liqo.io: the network between the pods of two clusters.
//
// A Configuration contains the address ranges of both clusters. A GatewayServer and a GatewayClient are the ends of the tunnel, a
// PublicKey is the key of the other end, and a Connection reports whether the tunnel is up. All objects of one peer are in its tenant
// namespace, and have the label liqo.io/remote-cluster-id with its cluster ID.
//
// The group, version, kinds and JSON names are Liqo's, so that either side of a peering may run either implementation.
//
// +kubebuilder:object:generate=true
// +groupName=networking.liqo.io
package v1beta1
