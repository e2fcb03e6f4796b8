// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 has the types of the group authentication.liqo.io: the requests of a consumer that runs Liqo to its
// provider.
//
// In its tenant namespace on the provider, a Tenant identifies and authenticates the consumer, a ResourceSlice
// requests resources and a separate user for them, and a Renew requests the replacement of a certificate that is
// about to expire. The provider responds in the status of these objects.
//
// The group, version, kinds and JSON names are Liqo's, so that either side of a peering may run either
// implementation. An Identity exists only on a consumer. It tells Liqo's tools in which Secret Refract stores the
// credentials.
//
// +kubebuilder:object:generate=true
// +groupName=authentication.liqo.io
package v1beta1
