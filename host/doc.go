// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package host runs the WebAssembly plugins that mutate objects at the cluster boundary. It handles documents and
// modules, and is independent of clusters.
//
// # Life of an object
//
// A reconciler gets an object from its cache. All readers of the cache share the object. The reconciler resets a
// document.Document to the object, and lets the Registry run the current Chain for the object's kind and the Hook:
//
//	doc.Reset(cached)
//	out, err := registry.Run(ctx, "Service", host.Outgoing, doc, env)
//	if err == nil && !out.Skipped {
//		desired := doc.Value() // new maps only on the way to an edit
//	}
//
// Each Plugin of the chain takes an instance of its module from a pool and calls the hook's export. The object is not
// copied into the module. The guest has handles, which are u32 numbers of nodes in the document. It reads and writes
// with the functions of the import module "refract" (docs/abi.md is the reference). Therefore the cost depends on the
// fields that a plugin uses, and not on the size of the object. Modules that were built with an Extism PDK are also
// supported. They get the whole object as JSON, which costs more.
//
// The instances and the functions that they may import are in host/internal/guest, and the compiler with its cache is
// in host/internal/compiler. This package loads modules, keeps pools of instances, runs chains and checks their edits.
//
// After each plugin the Guard checks its edits: no plugin may change an object's identity or ownership, or write
// outside the paths of its manifest. The chain is atomic: after an error or a skip the document is reset to its base.
//
// # Limits of a module
//
// A module may run any code until a limit stops it (Limits). Instructions and host functions cost fuel, which is a
// counter that host/fuel inserts into the module. With the same input, a module stops at the same instruction on
// every machine, and needs no watchdog. Handles, pointers, lengths and paths from a guest are not trusted. If one is
// invalid, the host function panics, which ends the call of the guest with a typed error (errors.go). An instance
// that did not end normally is discarded, because its memory cannot be trusted. If it had run before, the call is
// repeated once in a fresh instance.
//
// Modules have no access to files, sockets, environment variables, a clock or entropy. The result of a call depends
// only on the object, the context and the configuration.
//
// # Swapping
//
// Chains are immutable; Registry.Swap replaces a pointer. A run in progress continues with its chain. Plugin.Close
// waits for these runs. A run that uses the plugin later fails with a ClosedError, and Registry.Run repeats it with
// the new chain. So every result comes from a single generation.
//
// # Speed
//
// If the document, the Env and an instance were used before, a run usually allocates no memory. The hot path consists
// of Chain.Run, guest.Instance.RunHook, a host function and document.resolveRoute. This path uses no maps except the
// object's own, no locks, no Go reflection and no interfaces except wazero's. BenchmarkHost compares the cost of a run with
// the cost of the same mutation in Go.
package host
