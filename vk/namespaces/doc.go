// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package namespaces follows the NamespaceMap of one provider, and notifies the reflection engine of the offloaded
// namespaces and of the names of their remote namespaces.
//
// Reflection of a namespace starts when the provider has accepted its remote namespace, and stops when the map no
// longer contains the namespace. Stopping does not delete objects on the provider, because the provider's own
// controller deletes the remote namespace. An invalid entry (no name, an invalid name, or a remote namespace that
// another entry also has) has no effect: its namespace stays offloaded or not offloaded as before. If a provider has
// several maps, only the map that is named after the provider is used. If none of them has that name, all namespaces
// stay as before. Invalid entries and unused maps are reported once, in an Event on the map.
package namespaces
