// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package host runs the WebAssembly plugins that mutate objects at the cluster boundary. It handles documents and
// modules, and is independent of clusters.
//
// # Life of an object
//
// A reconciler reads an object from its cache, where all readers share it. It resets a document.Document to the object
// and runs the current Chain of the object's kind and Hook, from the Registry:
//
//	doc.Reset(cached)
//	out, err := registry.Run(ctx, "Service", host.Outgoing, doc, env)
//	if err == nil && !out.Skipped {
//		desired := doc.Value() // new maps only on the way to an edit
//	}
//
// Each Plugin of the chain takes an instance of its module from a pool and calls the hook's export. The object never
// enters the module: the guest has handles, u32 numbers of nodes in the document, and reads and writes through the
// functions of the import module "refract" (abi*.go; docs/abi.md is the reference). A plugin pays only for the fields
// it touches, whatever the size of the object. Modules of any Extism PDK, which need the whole object as JSON, are
// supported too (portable.go), at that price.
//
// After each plugin the Guard checks its edits: no plugin may change an object's identity or ownership, or write
// outside the paths of its manifest. The chain is atomic: after an error or a skip the document is reset to its base.
//
// # Limits of a module
//
// A module may run any code until a limit stops it (Limits). Instructions and host functions cost fuel, a counter that
// host/fuel builds into the module: the same input stops at the same instruction everywhere, and an instance needs no
// watchdog. Handles, pointers, lengths and paths are untrusted. An invalid one ends the call by a panic through the
// guest's stack, which the runtime turns into a typed error of the call (errors.go). An instance that did not end
// normally is discarded, because its memory cannot be trusted. If it had run before, the call is repeated once in a
// fresh instance.
//
// There are no files, sockets, environment, clock or entropy: a call depends only on the object, the context and the
// configuration.
//
// # Swapping
//
// Chains are immutable; Registry.Swap replaces a pointer. A run in progress keeps its chain. Plugin.Close waits for
// such runs and makes later ones fail with a ClosedError. Registry.Run then starts over with the new chain, so that a
// result comes from one generation.
//
// # Speed
//
// A run allocates nothing once the document, the Env and an instance are warm. The hot path is Chain.Run,
// instance.runHook, a host function, document.resolveRoute; it has no maps except the object's own, no locks, no reflection
// and no interfaces except wazero's. BenchmarkHost compares it with the same mutation in Go.
package host
