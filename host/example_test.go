// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"context"
	"fmt"
	"os"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
)

// This example mutates an object with a chain of one plugin. The cached object, which is shared with other readers,
// does not change.
func Example() {
	ctx := context.Background()
	h, err := host.New(ctx, host.NewConfig())
	if err != nil {
		panic(err)
	}
	defer func() { _ = h.Close(ctx) }()
	wasm, err := os.ReadFile("../examples/plugins/strip-vendor-labels/strip-vendor-labels.wasm")
	if err != nil {
		panic(err)
	}
	plugin, err := h.Load(ctx, "strip-vendor-labels", wasm, host.PluginConfig{Config: map[string]any{"labels": []any{"vendor.example.com/*"}}})
	if err != nil {
		panic(err)
	}
	chain, err := host.NewChain(host.Outgoing, host.DefaultGuard("Service"), plugin)
	if err != nil {
		panic(err)
	}
	service := map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{
		"name": "web", "labels": map[string]any{"app": "web", "vendor.example.com/build": "7"},
	}}
	doc := document.New()
	doc.Reset(service)
	outcome, err := chain.Run(ctx, doc, &host.Env{})
	fmt.Println(outcome.Skipped, err)
	fmt.Println(doc.Value()["metadata"])
	fmt.Println(service["metadata"])
	// Output:
	// false <nil>
	// map[labels:map[app:web] name:web]
	// map[labels:map[app:web vendor.example.com/build:7] name:web]
}
