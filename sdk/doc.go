// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package sdk is what the author of a Refract plugin imports.
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
// The object never enters the plugin. The host keeps it and the plugin holds
// [Node] values, small references that are read and written by path:
// "spec.clusterIP", "spec.ports.0.name", "metadata.labels[app.kubernetes.io/name]"
// (a key in brackets is taken verbatim, so it may hold dots). Reading what is
// not there is no error: it gives the zero value, and a Node that does not
// [Node.Exists], from which one may read on. Fields that the plugin does not
// name cross the boundary as they are, also fields it has never heard of.
//
// Each read and each write is one call into the host, 50 to 80 ns. A thousand
// of them are still cheap; where it matters, [Node.Remove] takes several paths
// and wildcards in one call, [Node.Is] compares without copying, and
// [Node.Copy] moves a subtree without the plugin looking into it.
//
// # Outcome of a hook
//
// Returning nil keeps the edits. [Skip] says that this object is not to be
// reflected. Any other error drops all edits and is reported on the object. A
// mistake (a number where a string was expected, a malformed path, a write to
// the context) ends the call at once with an error that names function and
// path: nothing has to be checked by the plugin.
//
// A hook must be idempotent: run again on its own result it changes nothing.
//
// # Memory
//
// Strings that come from the host live in a scratch area which is reused when
// the hook is called again. Use strings.Clone to keep one in a variable that
// outlives the call. Nothing is allocated on the heap by reading or writing.
//
// # Two builds of one source
//
// Compiled with TinyGo (-target=wasip1 -buildmode=c-shared) or with Go
// (GOOS=wasip1 GOARCH=wasm, -buildmode=c-shared) the package calls the host.
// Compiled natively it works on an in-memory object with the same semantics:
// [Plugin.RunNative] runs a hook under plain `go test` and under a debugger.
// Package plugintest runs the compiled module on the real host.
package sdk
