// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package negotiation makes a virtual node follow the offer of its provider in the status of a ResourceSlice.
//
// The creator of the VirtualNode records two things in its annotations: the requested resources, and the fields of
// the spec that follow the provider because no flag has set them. If another client has written a field since then,
// as the managedFields show, the field no longer follows the provider. A provider is not trusted, so its offer is
// checked before it is used.
package negotiation
