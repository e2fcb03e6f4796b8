// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package sdk is the library for authors of Refract plugins.
//
// A plugin mutates one object at the boundary of two clusters. It is a Go program with an empty main and one
// registration:
//
//	package main
//
//	import "github.com/refract-project/refract/sdk"
//
//	var plugin = sdk.Register(sdk.Manifest{
//		Name:    "no-node-ports",
//		Version: "1.0.0",
//		Kinds:   []string{"Service"},
//		Writes:  []string{"spec.ports"},
//	}, sdk.Outgoing(func(ctx sdk.Context, service sdk.Object) error {
//		if service.Annotations().Is("example.com/keep-node-ports", "true") {
//			return nil
//		}
//		service.Remove("spec.ports.*.nodePort")
//		return nil
//	}))
//
//	func main() {}
//
// # Access to the object
//
// The object is not copied into the plugin. It stays in the host, and the plugin has values of type [Node], which are
// small references. Values are read and written by path: "spec.clusterIP", "spec.ports.0.name",
// "metadata.labels[app.kubernetes.io/name]". A key in brackets may contain any characters, including dots. Reading a
// missing value is not an error: it returns the zero value, or a Node that does not exist (see [Node.Exists]).
// Reading from such a Node is not an error either. Fields that the plugin does not change are reflected unchanged,
// including unknown fields.
//
// Each read and each write is one call of the host, which takes 50 to 80 ns. If this is too slow, [Node.Remove]
// accepts several paths and wildcards in one call, [Node.Is] compares a value without copying it, and [Node.Copy]
// copies a subtree without loading it into the plugin.
//
// # Outcome of a hook
//
// Returning nil keeps the edits. Returning [Skip] prevents the object from being reflected. After any other error,
// all edits are dropped, and the error is reported on the object. A mistake (a number where a string was expected, a
// malformed path, a write to the context) ends the call at once with an error that names the function and the path,
// so plugins need not check for mistakes.
//
// A hook must be idempotent: when it runs on its own result, it must not change anything.
//
// # Memory
//
// Strings from the host are stored in a buffer that the next call of the hook reuses. Use strings.Clone to keep a
// string in a variable that outlives the call. Reading and writing usually allocate nothing on the heap.
//
// # Two builds of one source
//
// When the package is compiled with TinyGo (-target=wasip1 -buildmode=c-shared) or with Go (GOOS=wasip1 GOARCH=wasm,
// -buildmode=c-shared), it calls the host. When it is compiled natively, it works on an in-memory object with the
// same semantics: [Plugin.RunNative] runs a hook in an ordinary `go test` or in a debugger. Package plugintest runs
// the compiled module on the real host.
package sdk
