// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package namespaces follows the NamespaceMap of one provider and notifies the reflection engine which namespaces are
// offloaded to it, and under which name.
//
// A namespace starts when the provider has accepted its remote namespace and stops when the map says so; stopping deletes
// nothing on the provider, whose own controller removes the remote namespace. Doubt changes nothing: an entry that is invalid
// (no name, a name that cannot be one, the remote namespace of two namespaces) leaves its namespace as it is. Of several maps for one
// provider the one that is named after it is followed; where none is, all namespaces stay as they are. Entries without
// sense and maps that are not followed are reported by an Event on the map, once.
package namespaces
