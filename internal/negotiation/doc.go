// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package negotiation makes a virtual node follow the offer of its provider in the status of a ResourceSlice.
//
// The creator of the VirtualNode records the requested resources in its annotations, and the fields of its spec that
// follow the provider because no flag has set them. According to the managedFields, a field that another client has
// written since belongs to this client. A provider is not trusted, so its offer is checked before it is used.
package negotiation
