// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package namespaces follows the NamespaceMap of one provider, and notifies the reflection engine of the offloaded
// namespaces and of the names of their remote namespaces.
//
// Reflection of a namespace starts when the provider has accepted its remote namespace, and stops when the map no
// longer has it. Stopping deletes nothing on the provider, whose own controller deletes the remote namespace. An
// invalid entry (no name, an invalid name, the remote namespace of two namespaces) leaves its namespace unchanged. Of
// several maps for one provider, only the one named after it is used; without that one, all namespaces stay
// unchanged. Invalid entries and unused maps are reported once, in an Event on the map.
package namespaces
