// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"testing"

	"github.com/refract-project/refract/host/document"
)

// BenchmarkABI measures single functions of the ABI. A guest calls each function a hundred times per run. The metric
// ns/call is the time of one call, including the transition between guest and host. docs/abi.md quotes the figures.
func BenchmarkABI(b *testing.B) {
	const calls = 100
	h := newHost(b)
	for _, s := range []struct {
		name string
		step step
	}{
		{"kind", step{"kind", []any{1, "spec.type"}}},
		{"len", step{"len", []any{1, "spec.ports"}}},
		{"get", step{"get", []any{1, "spec.selector"}}},
		{"field", step{"field", []any{1, "spec"}}},
		{"string", step{"string", []any{1, "spec.type", 32768, 256}}},
		{"string_eq", step{"string_eq", []any{1, "spec.type", "ClusterIP"}}},
		{"int", step{"int", []any{1, "spec.ports[0].port", int64(0)}}},
		{"bool", step{"bool", []any{1, "spec.publishNotReadyAddresses", 0}}},
		{"keys", step{"keys", []any{1, "metadata.labels", 32768, 1024}}},
		{"json", step{"json", []any{1, "spec.ports", 32768, 1024}}},
		{"set_string", step{"set_string", []any{1, "spec.type", "ClusterIP"}}},
		{"set_int", step{"set_int", []any{1, "spec.ports[0].port", int64(9)}}},
		{"ensure_map", step{"ensure_map", []any{1, "metadata.annotations"}}},
		{"set_json", step{"set_json", []any{1, "spec.selector", `{"app":"shop","tier":"web"}`}}},
		{"remove", step{"remove", []any{1, "spec.clusterIP"}}},
		{"remove-7", step{"remove", []any{1, "spec.loadBalancerIP\nspec.loadBalancerClass\nspec.ipFamilies\nspec.clusterIP\nspec.clusterIPs\nspec.ports.*.nodePort\nspec.healthCheckNodePort"}}},
		{"remove_keys-2", step{"remove_keys", []any{1, "metadata.labels\nmetadata.annotations", 2, "offloadingPatch.labelsNotReflected\noffloadingPatch.annotationsNotReflected"}}},
		{"remove_keys_glob", step{"remove_keys_glob", []any{1, "metadata.labels", "vendor.example.com/*"}}},
		{"remap_ip", step{"remap_ip", []any{"10.0.0.1", 32768, 64}}},
		{"log", step{"log", []any{0, "a line"}}},
	} {
		steps := make([]step, calls)
		for i := range steps {
			steps[i] = s.step
		}
		p := mustLoad(b, h, s.name, assembleGuest(s.name, `"*"`, returnZero, steps...), PluginConfig{})
		b.Run(s.name, func(b *testing.B) {
			chain, err := NewChain(Outgoing, Guard{}, p)
			if err != nil {
				b.Fatal(err)
			}
			object := serviceObject()
			doc, env, ctx := document.New(), &Env{Context: benchContext(), RemapIP: identityIP}, context.Background()
			for b.Loop() {
				doc.Reset(object)
				_, err = chain.Run(ctx, doc, env)
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/calls, "ns/call")
		})
	}
}
