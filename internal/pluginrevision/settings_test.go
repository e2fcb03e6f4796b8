// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package pluginrevision

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host/source"
)

// TestDecodeOptions checks that each setting sets the corresponding option.
func TestDecodeOptions(t *testing.T) {
	t.Parallel()
	options, err := DecodeOptions(&plugins.PluginSettings{
		Kinds: []string{"Pod"}, Priority: -3, Replaces: "pod", Writes: []string{"spec"}, FailurePolicy: plugins.IgnorePluginPolicy,
		Capabilities: []plugins.PluginCapability{"skip"},
		Limits:       &plugins.PluginLimits{Fuel: 1, MemoryPages: 2, OutputBytes: 3, CallDepth: 4, ModuleBytes: 5, Handles: 6},
		Config:       &runtime.RawExtension{Raw: []byte(`{"replicas":9007199254740993}`)},
	})
	require.NoError(t, err)
	assert.Equal(t, source.Options{
		Kinds: []string{"Pod"}, Priority: -3, Replaces: "pod", Writes: []string{"spec"}, IgnoreFailure: true,
		Capabilities: []string{"skip"},
		Limits:       source.Limits{Fuel: 1, MemoryPages: 2, OutputBytes: 3, CallDepth: 4, ModuleBytes: 5, Handles: 6},
		Config:       map[string]any{"replicas": int64(9007199254740993)},
	}, options)
	_, err = DecodeOptions(&plugins.PluginSettings{Config: &runtime.RawExtension{Raw: []byte(`[]`)}})
	require.Error(t, err)
}
