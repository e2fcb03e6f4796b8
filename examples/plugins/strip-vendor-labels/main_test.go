// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/sdk"
	"github.com/refract-project/refract/sdk/plugintest"
)

const module = "strip-vendor-labels.wasm"

// TestCases runs the compiled module on the real host, and compares the results with testdata.
func TestCases(t *testing.T) {
	plugintest.Run(t, module, "testdata", plugintest.Native(plugin))
}

// TestProperties checks on generated objects that the compiled module does not fail, is idempotent, and gives the same
// results as the native build.
func TestProperties(t *testing.T) {
	plugintest.Property(t, module, "testdata", 1000, plugintest.Native(plugin))
}

// TestNative runs the native build of the hook in the test process, so that you can set a breakpoint in outgoing.
func TestNative(t *testing.T) {
	result, err := plugin.RunNative(sdk.Call{Hook: sdk.HookOutgoing, Object: map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"cloud.google.com/gke-nodepool": "a", "app": "web"}},
	}})
	require.NoError(t, err)
	labels := result.Object["metadata"].(map[string]any)["labels"].(map[string]any)
	if len(labels) != 1 || labels["app"] != "web" {
		t.Errorf("labels are %v, want app=web alone", labels)
	}
}
