// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 holds the types of the group authentication.liqo.io: how a consumer that runs Liqo asks its provider for access.
//
// In its tenant namespace at the provider, a Tenant says who the consumer is and proves it, a ResourceSlice asks for a share of the
// cluster and for a user of its own, and a Renew asks for a certificate that follows one which is about to expire. The answers are in
// their status.
//
// The group, version, kinds and JSON names are Liqo's, so that either side of a peering may be either implementation. Its
// Identity, which only a consumer has, is not here: consumers that run Refract keep their access in a Secret.
//
// +kubebuilder:object:generate=true
// +groupName=authentication.liqo.io
package v1beta1
