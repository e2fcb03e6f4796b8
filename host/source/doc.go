// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package source loads modules into the chains of a host.Registry.
//
// [ReadFS] and [ReadDir] find modules: a plugin is a file <name>.wasm, with optional [Options] in <name>.yaml.
// [Chains] determines which plugins form the chain of each kind, loads new plugins, swaps changed chains and closes
// unused plugins. [Dir] does this continuously for a directory, so that a plugin can be added, replaced or removed by
// changing a file.
//
// # Order
//
// The plugins of the directory ([Chains.Apply]) and the declared plugins ([Chains.Declare]) are ordered together, by
// priority (lowest first) and then by name. The default plugins of the kind run after plugins with a negative
// priority and before plugins with priority 0. Kinds without a default plugin of their own use the default plugin for
// "*". This includes custom resources, whose chains are added and removed at run time ([Chains.AddKind]). A plugin
// with `replaces: <default>` removes this default plugin from its own chains, or only for the objects that its
// selector selects. A plugin whose manifest has "*" is in the chains of all kinds.
//
// # Errors
//
// If a file cannot be read, compiled or configured, its previous version stays active, and its [Status] has the
// error. If the directory disappears, all plugins stay active. A plugin is removed from its chains only if its file
// is missing from a readable directory, or if it is no longer declared. If a plugin cannot run and has no previous
// version, its objects are held: they wait, and the chain returns a host.HeldError. This applies to declared plugins at
// any time, and to files that are broken at the start.
package source
