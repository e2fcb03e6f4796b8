// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/host/fuel"
)

// BenchmarkUnit reports the fuel and the time of different kinds of code, compiled by TinyGo and by Go. The price of
// instructions is right if a unit of fuel takes about the same time in all kinds of code. loop, jsons, format and
// match are exports of fuel/testdata/workload.
func BenchmarkUnit(b *testing.B) {
	tinygo, err := os.ReadFile("fuel/testdata/workload.wasm")
	if err != nil {
		b.Fatal(err)
	}
	for compiler, wasm := range map[string][]byte{"tinygo": tinygo, "go": buildWithGo(b, "./fuel/testdata/workload")} {
		mod := instrumented(b, wasm)
		for _, w := range []struct {
			name string
			n    uint64
		}{{"loop", 10_000}, {"jsons", 10}, {"format", 20}, {"match", 4}} {
			b.Run(w.name+"-"+compiler, func(b *testing.B) { benchExport(b, mod, w.name, w.n) })
		}
	}
	h := newHost(b)
	for kind, object := range map[string]map[string]any{"Service": serviceObject(), "Pod": podObject(), "EndpointSlice": sliceObject(100)} {
		b.Run("plugin-"+kind, func(b *testing.B) {
			benchFuel(b, object, kind, mustLoad(b, h, kind, defaultModule(b, kind), PluginConfig{}))
		})
	}
}

// buildWithGo compiles a plugin, or the workload, with the Go compiler.
func buildWithGo(tb testing.TB, dir string) []byte {
	tb.Helper()
	out := filepath.Join(tb.TempDir(), "go.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-o", out, dir)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("building %s with Go: %v\n%s", dir, err, text)
	}
	wasm, err := os.ReadFile(out)
	if err != nil {
		tb.Fatal(err)
	}
	return wasm
}

// instrumented returns an instance of a module that imports only WASI, instrumented with fuel.
func instrumented(b *testing.B, wasm []byte) api.Module {
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(api.CoreFeaturesV2))
	b.Cleanup(func() { _ = r.Close(ctx) })
	wasi_snapshot_preview1.MustInstantiate(ctx, r)
	wasm, err := fuel.Instrument(wasm, fuel.Options{Start: math.MaxInt64, MemoryPages: 4096})
	if err != nil {
		b.Fatal(err)
	}
	mod, err := r.InstantiateWithConfig(ctx, wasm, wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize"))
	if err != nil {
		b.Fatal(err)
	}
	return mod
}

func benchExport(b *testing.B, mod api.Module, name string, n uint64) {
	f, left := mod.ExportedFunction(name), mod.ExportedGlobal(fuel.GlobalName).(api.MutableGlobal)
	left.Set(math.MaxInt64)
	stack, used := [1]uint64{}, int64(0)
	defer func() { b.ReportMetric(float64(used)/float64(b.N), "fuel/op") }()
	defer cpuPerOp(b)()
	for b.Loop() {
		stack[0] = n
		if err := f.CallWithStack(context.Background(), stack[:]); err != nil {
			b.Fatal(err)
		}
	}
	used = math.MaxInt64 - int64(left.Get())
}

// benchFuel runs the same benchmark as benchChain, and also reports the fuel per operation.
func benchFuel(b *testing.B, object map[string]any, kind string, p *Plugin) {
	chain, err := NewChain(Outgoing, DefaultGuard(kind), p)
	if err != nil {
		b.Fatal(err)
	}
	doc, env := document.New(), &Env{Context: benchContext(), RemapIP: identityIP, Domain: "shop", Measure: true}
	used := int64(0)
	defer func() { b.ReportMetric(float64(used)/float64(b.N), "fuel/op") }()
	defer cpuPerOp(b)()
	for b.Loop() {
		doc.Reset(object)
		out, err := chain.Run(context.Background(), doc, env)
		if err != nil {
			b.Fatal(err)
		}
		used += out.Calls[0].Fuel
	}
}
