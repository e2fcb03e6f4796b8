// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package source brings modules from where they are kept into the chains of a host.Registry.
//
// [ReadFS] and [ReadDir] find modules: a plugin is a file <name>.wasm, with <name>.yaml beside it when it needs
// [Options]. [Chains] decides which plugins make up the chain of which kind, loads what is new, swaps the
// chains that change and closes unused plugins. [Dir] keeps doing that for a directory while the
// process runs: a plugin is added, replaced or removed by copying a file.
//
// # Order
//
// A chain begins with the default plugins of its kind, or with the default plugin for "*" when it has none, as
// custom resources do, whose chains come and go ([Chains.AddKind]). Those of the directory follow, by priority
// (the lowest first) and then by name. A plugin with `replaces: <default>` takes that default plugin out of the
// chains that it is itself in; one whose manifest says "*" is in all of them.
//
// # When something is wrong
//
// A file that cannot be read, compiled or configured changes nothing: the version of it that ran before runs
// on, and its [Status] says so, with the error. A directory that disappears changes nothing either. A plugin
// leaves its chains only when its file is gone from a directory that can be read.
package source
