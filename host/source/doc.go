// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package source loads modules into the chains of a host.Registry.
//
// [ReadFS] and [ReadDir] find modules: a plugin is a file <name>.wasm, with optional [Options] in <name>.yaml.
// [Chains] decides which plugins form the chain of which kind, loads new ones, swaps changed chains and closes unused
// plugins. [Dir] does this continuously for a directory: a plugin is added, replaced or removed by copying a file.
//
// # Order
//
// A chain begins with the default plugins of its kind. Kinds without one, like custom resources, whose chains are added
// and removed at run time ([Chains.AddKind]), have the default plugin for "*". The plugins of the directory follow, by
// priority (lowest first) and then by name. A plugin with `replaces: <default>` removes that default plugin from its
// own chains; a plugin whose manifest has "*" is in the chains of all kinds.
//
// # Errors
//
// A file that cannot be read, compiled or configured changes nothing: its previous version stays active, and its
// [Status] has the error. A directory that disappears changes nothing either. A plugin leaves its chains only when
// its file is missing from a readable directory.
package source
