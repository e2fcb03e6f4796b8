// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package sdk is the library for authors of Refract plugins.
//
// A plugin mutates one object at the boundary of two clusters. It is a Go
// program with an empty main and one registration:
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
// # Where the object is
//
// The object never enters the plugin. The host keeps it, and the plugin holds
// [Node] values, small references that are read and written by path:
// "spec.clusterIP", "spec.ports.0.name", "metadata.labels[app.kubernetes.io/name]"
// (a key in brackets is taken verbatim, so it may contain dots). Reading a missing
// value is no error: it returns the zero value, or a Node that does not exist (see
// [Node.Exists]) and can be read further. Fields that the plugin does not name
// cross the boundary unchanged, including unknown ones.
//
// Each read and each write is one call into the host, 50 to 80 ns. A thousand
// of them are still cheap. If it matters, [Node.Remove] takes several paths
// and wildcards in one call, [Node.Is] compares without copying, and
// [Node.Copy] copies a subtree without loading it into the plugin.
//
// # Outcome of a hook
//
// Returning nil keeps the edits. Returning [Skip] prevents the object from
// being reflected. Any other error drops all edits and is reported on the
// object. A mistake (a number where a string was expected, a malformed
// path, a write to the context) ends the call at once with an error that
// names the function and the path: the plugin need not check for it.
//
// A hook must be idempotent: run on its own result, it changes nothing.
//
// # Memory
//
// Strings from the host live in a scratch area that is reused when the
// hook is called again. Use strings.Clone to keep one in a variable that
// outlives the call. Reading and writing allocate nothing on the heap.
//
// # Two builds of one source
//
// Compiled with TinyGo (-target=wasip1 -buildmode=c-shared) or with Go
// (GOOS=wasip1 GOARCH=wasm, -buildmode=c-shared) the package calls the host.
// Compiled natively it works on an in-memory object with the same semantics:
// [Plugin.RunNative] runs a hook under plain `go test` and under a debugger.
// Package plugintest runs the compiled module on the real host.
package sdk
