// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 has the types of the group ipam.liqo.io: the addresses of the network between clusters.
//
// A Network requests a range of addresses, and an IP requests an address within such a range. Their status contains the granted range
// or address, and is the only record of it.
//
// The group, version, kinds and JSON names are Liqo's, so that either side of a peering may run either implementation.
//
// +kubebuilder:object:generate=true
// +groupName=ipam.liqo.io
package v1alpha1
