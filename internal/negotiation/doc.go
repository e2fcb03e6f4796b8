// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package negotiation applies a provider's offer, which is in the status of a ResourceSlice, to a virtual node.
//
// The creator of a VirtualNode records in annotations which resources it requests, and which fields of the spec follow
// the provider because no flag has set them. If the managedFields show that another client has written a field since
// then, the field no longer follows the provider. A provider is not trusted, so its offer is checked before it is used.
package negotiation
