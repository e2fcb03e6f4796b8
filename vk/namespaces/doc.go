// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package namespaces watches the NamespaceMap of one provider. It tells the reflection engine which namespaces are
// offloaded, and the names of their remote namespaces.
//
// Reflection of a namespace starts when the provider has accepted its remote namespace, and stops when the map no
// longer contains the namespace. Stopping does not delete objects on the provider, because the provider's own
// controller deletes the remote namespace. An invalid entry (no name, an invalid name, or a remote namespace that
// another entry also has) is ignored: if its namespace was offloaded before, it stays offloaded. If a provider has
// several maps, only the map that is named after the provider is used. If no map has that name, nothing changes for any
// namespace. Invalid entries and unused maps are reported once, in an Event on the map.
package namespaces
