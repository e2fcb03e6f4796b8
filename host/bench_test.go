// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/plugins"
)

// BenchmarkHost runs whole chains, guard included, as a reconcile does: the document is reset on the object in the cache,
// then the chain runs. Building the result is in host/document. …-native does the same to a deep copy in Go, …-bare is
// without fuel.
func BenchmarkHost(b *testing.B) {
	h := newHost(b)
	service := mustLoad(b, h, "service", defaultModule(b, "Service"), PluginConfig{})
	bare := mustLoad(b, h, "service", defaultModule(b, "Service"), PluginConfig{unmetered: true})
	b.Run("noop", func(b *testing.B) {
		benchChain(b, serviceObject(), "Service", mustLoad(b, h, "noop", noop, PluginConfig{}))
	})
	b.Run("service", func(b *testing.B) { benchChain(b, serviceObject(), "Service", service) })
	b.Run("service-bare", func(b *testing.B) { benchChain(b, serviceObject(), "Service", bare) })
	b.Run("service-native", func(b *testing.B) { benchNative(b, serviceObject(), nativeService) })
	b.Run("service-200k", func(b *testing.B) { benchChain(b, bigService(), "Service", service) })
	b.Run("chain-5", func(b *testing.B) {
		benchChain(b, serviceObject(), "Service", service, service, service, service, service)
	})
}

func newHost(tb testing.TB) *Host {
	tb.Helper()
	h, err := New(context.Background(), NewConfig().WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = h.Close(context.Background()) })
	return h
}

func mustLoad(tb testing.TB, h *Host, name string, wasm []byte, pc PluginConfig) *Plugin {
	tb.Helper()
	p, err := h.Load(context.Background(), name, wasm, pc)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func defaultModule(tb testing.TB, kind string) []byte {
	_, wasm := plugins.Default(kind)
	if wasm == nil {
		tb.Fatalf("there is no default plugin for %s", kind)
	}
	return wasm
}

func benchChain(b *testing.B, object map[string]any, kind string, list ...*Plugin) {
	chain, err := NewChain(Outgoing, DefaultGuard(kind), list...)
	if err != nil {
		b.Fatal(err)
	}
	doc, env, ctx := document.New(), &Env{Context: benchContext()}, context.Background()
	for range 10 {
		doc.Reset(object)
		if _, err := chain.Run(ctx, doc, env); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	defer cpuPerOp(b)()
	for b.Loop() {
		doc.Reset(object)
		if _, err := chain.Run(ctx, doc, env); err != nil {
			b.Fatal(err)
		}
	}
}

// cpuPerOp adds the processor time, which other work on the machine distorts less than ns/op.
func cpuPerOp(b *testing.B) func() {
	start := cpuTime()
	return func() { b.ReportMetric(float64(cpuTime()-start)/float64(b.N), "cpu-ns/op") }
}

func cpuTime() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func benchNative(b *testing.B, object map[string]any, mutate func(object, context map[string]any)) {
	c := benchContext()
	b.ReportAllocs()
	defer cpuPerOp(b)()
	for b.Loop() {
		mutate(deepCopy(object).(map[string]any), c)
	}
}

func benchContext() map[string]any {
	return map[string]any{
		"hook": "outgoing", "localClusterID": "rome", "remoteClusterID": "milan",
		"localNamespace": "shop", "remoteNamespace": "shop-rome", "nodeName": "milan", "nodeIP": "10.0.0.9",
		"apiServerSupport": "Disabled",
		"offloadingPatch": map[string]any{
			"labelsNotReflected": []any{"vendor.example.com/*"}, "annotationsNotReflected": []any{"vendor.example.com/*"},
		},
		"virtualNodes": map[string]any{"milan": "milan"},
	}
}

func serviceObject() map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{
			"name": "frontend", "namespace": "shop", "uid": "7b6c", "resourceVersion": "812",
			"labels":      map[string]any{"app": "shop", "tier": "frontend", "vendor.example.com/cost": "7"},
			"annotations": map[string]any{"note": "front door"},
		},
		"spec": map[string]any{
			"type": "LoadBalancer", "clusterIP": "10.96.4.2", "clusterIPs": []any{"10.96.4.2"},
			"ipFamilies": []any{"IPv4"}, "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None",
			"internalTrafficPolicy": "Cluster", "externalTrafficPolicy": "Cluster",
			"ports": []any{
				map[string]any{"name": "http", "port": int64(80), "targetPort": int64(8080), "nodePort": int64(30080), "protocol": "TCP"},
				map[string]any{"name": "https", "port": int64(443), "targetPort": int64(8443), "nodePort": int64(30443), "protocol": "TCP"},
			},
			"selector": map[string]any{"app": "shop", "tier": "frontend"},
		},
		"status": map[string]any{"loadBalancer": map[string]any{}},
	}
}

func bigService() map[string]any {
	o := serviceObject()
	o["metadata"].(map[string]any)["annotations"].(map[string]any)["big"] = strings.Repeat("x", 200_000)
	return o
}

func nativeService(o, c map[string]any) {
	meta, spec := o["metadata"].(map[string]any), o["spec"].(map[string]any)
	patch := c["offloadingPatch"].(map[string]any)
	for field, globs := range map[string]any{"labels": patch["labelsNotReflected"], "annotations": patch["annotationsNotReflected"]} {
		m, _ := meta[field].(map[string]any)
		for k := range m {
			for _, g := range globs.([]any) {
				if document.Match(g.(string), k) {
					delete(m, k)
				}
			}
		}
	}
	for _, k := range []string{"clusterIP", "clusterIPs", "loadBalancerIP", "loadBalancerClass", "healthCheckNodePort", "ipFamilies"} {
		delete(spec, k)
	}
	for _, p := range spec["ports"].([]any) {
		delete(p.(map[string]any), "nodePort")
	}
}

func deepCopy(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[k] = deepCopy(e)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, e := range v {
			l[i] = deepCopy(e)
		}
		return l
	}
	return v
}
