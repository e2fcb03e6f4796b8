// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"fmt"

	"github.com/refract-project/refract/sdk"
)

// noDebug is the plugin in README.md. TestExampleIsThatOfTheREADME checks that both are equal.
var noDebug = sdk.Register(
	sdk.Manifest{Name: "no-debug", Version: "1.0.0", Kinds: []string{"*"}, Writes: []string{"metadata.labels"}},
	sdk.Outgoing(func(ctx sdk.Context, obj sdk.Object) error {
		obj.Labels().RemovePrefix("debug.example.com/")
		return nil
	}))

// This example runs a plugin natively, without a host, as in a test or a debugger.
func Example() {
	result, err := noDebug.RunNative(sdk.Call{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{"name": "web", "labels": map[string]any{"app": "web", "debug.example.com/trace": "on"}},
	}})
	fmt.Println(result.Object["metadata"], err)
	// Output: map[labels:map[app:web] name:web] <nil>
}

// A path leads to a value at any depth. If there is no value, the result is the zero value.
func ExampleNode_String() {
	printPort := func(_ sdk.Context, service sdk.Object) error {
		fmt.Printf("%q %q\n", service.String("spec.ports.0.name"), service.String("spec.externalName"))
		return nil
	}
	runHook(printPort, map[string]any{"spec": map[string]any{"ports": []any{map[string]any{"name": "http"}}}})
	// Output: "http" ""
}

// A wildcard matches each element of a list.
func ExampleNode_Remove() {
	removeNodePorts := func(_ sdk.Context, service sdk.Object) error {
		fmt.Println(service.Remove("spec.ports.*.nodePort", "spec.clusterIP"))
		return nil
	}
	object := runHook(removeNodePorts, map[string]any{"spec": map[string]any{
		"clusterIP": "10.0.0.1", "ports": []any{map[string]any{"port": 80, "nodePort": 30080}, map[string]any{"port": 443, "nodePort": 30443}},
	}})
	fmt.Println(object)
	// Output:
	// 3
	// map[spec:map[ports:[map[port:80] map[port:443]]]]
}

// If a plugin skips an object, the object is not reflected. The manifest must declare the capability "skip".
func ExampleSkip() {
	keepPrivate := func(_ sdk.Context, object sdk.Object) error {
		if object.Labels().Is("visibility", "private") {
			return sdk.Skip("it is private")
		}
		return nil
	}
	runHook(keepPrivate, map[string]any{"metadata": map[string]any{"labels": map[string]any{"visibility": "private"}}})
	// Output: skipped: it is private
}

// runHook runs a hook and returns the mutated object. If there is none, it prints the reason.
func runHook(hook sdk.HookFunc, object map[string]any) map[string]any {
	plugin := &sdk.Plugin{}
	sdk.Outgoing(hook)(plugin)
	result, err := plugin.RunNative(sdk.Call{Object: object})
	switch {
	case err != nil:
		fmt.Println("failed:", err)
		return nil
	case result.Skipped:
		fmt.Println("skipped:", result.SkipReason)
	}
	return result.Object
}
