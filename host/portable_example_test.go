// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPortableExample checks that an example plugin, which was built with another PDK, works in a chain, and that the
// guard also applies to it.
func TestPortableExample(t *testing.T) {
	example := func(name string) []byte {
		wasm, err := os.ReadFile("../examples/plugins/" + name + "/" + name + ".wasm")
		require.NoError(t, err)
		return wasm
	}
	h := newHost(t)
	strip := mustLoad(t, h, "strip-vendor-labels", example("strip-vendor-labels"), PluginConfig{})
	service := func(labels map[string]any) map[string]any {
		metadata := map[string]any{"name": "web"}
		if labels != nil {
			metadata["labels"] = labels
		}
		return map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": map[string]any{"ports": []any{map[string]any{"port": int64(80)}}}}
	}
	config := map[string]any{"team": "shop"}
	for name, test := range map[string]struct {
		config map[string]any
		writes string
		labels map[string]any
		want   map[string]any // labels of the result
		says   string         // text of the error or of the reason to skip
	}{
		"its first label":   {config, "metadata.labels", nil, map[string]any{"team": "shop"}, ""},
		"a further label":   {config, "metadata.labels", map[string]any{"app": "web"}, map[string]any{"app": "web", "team": "shop"}, ""},
		"it keeps one here": {config, "metadata.labels", map[string]any{"team": "private"}, map[string]any{"team": "private"}, "it is private"},
		"no team":           {nil, "metadata.labels", nil, nil, "names no team"},
		"not declared":      {config, "metadata.annotations", nil, nil, "metadata.labels"},
	} {
		t.Run(name, func(t *testing.T) {
			p := mustLoad(t, h, "portable-team", example("portable-team"), PluginConfig{Kinds: []string{"Service"}, Writes: []string{test.writes}, Capabilities: []string{CapabilitySkip}, Config: test.config})
			got, outcome, err := run(t, service(test.labels), p, strip)
			switch {
			case test.want == nil:
				if err == nil || !strings.Contains(err.Error(), test.says) {
					t.Errorf("%v, want %q", err, test.says)
				}
			case err != nil:
				t.Error(err)
			case outcome.SkipReason != test.says || !reflect.DeepEqual(got, service(test.want)):
				t.Errorf("%v, skipped %q", got, outcome.SkipReason)
			}
		})
	}
}
