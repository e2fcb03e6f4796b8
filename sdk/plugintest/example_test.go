// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugintest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/sdk/plugintest"
)

// test replaces testing.T, which examples do not have. It prints failures.
type test struct {
	testing.TB
	cleanups []func()
}

func (*test) Helper()                      {}
func (*test) Context() context.Context     { return context.Background() }
func (t *test) Cleanup(f func())           { t.cleanups = append(t.cleanups, f) }
func (*test) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }
func (*test) Fatalf(text string, a ...any) { panic(fmt.Sprintf(text, a...)) }
func (*test) Errorf(text string, a ...any) { fmt.Printf(text+"\n", a...) }
func (t *test) end() {
	for _, cleanup := range t.cleanups {
		cleanup()
	}
}

// This example runs a compiled plugin on the real host. Check fails if the plugin has a fault or is not idempotent.
func ExampleCheck() {
	t := &test{}
	defer t.end()
	module := plugintest.Open(t, "../../examples/plugins/strip-vendor-labels/strip-vendor-labels.wasm")
	outcome := plugintest.Check(t, module, plugintest.Case{
		Hook: host.Outgoing,
		Object: map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{
			"name": "web", "labels": map[string]any{"app": "web", "vendor.example.com/build": "7"},
		}},
		Config: map[string]any{"labels": []any{"vendor.example.com/*"}},
	})
	fmt.Println(outcome.Object["metadata"], outcome.Err)
	// Output: map[labels:map[app:web] name:web] <nil>
}
