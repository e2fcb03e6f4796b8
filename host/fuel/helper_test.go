// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel_test

import (
	"context"
	_ "embed"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/refract-project/refract/host/fuel"
	"github.com/refract-project/refract/test/support/wattest"
)

// workload is the program in testdata/workload, built by TinyGo.
//
//go:embed testdata/workload.wasm
var workload []byte

func assemble(t testing.TB, source string) []byte {
	t.Helper()
	wasm, err := wattest.Assemble(source)
	require.NoError(t, err)
	return wasm
}

func instrument(t testing.TB, wasm []byte, opts fuel.Options) []byte {
	t.Helper()
	out, err := fuel.Instrument(wasm, opts)
	require.NoError(t, err)
	return out
}

// runtime returns a wazero runtime with WASI and a host function.
func runtime(t testing.TB) wazero.Runtime {
	t.Helper()
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfig().WithCoreFeatures(api.CoreFeaturesV2))
	t.Cleanup(func() { _ = r.Close(ctx) })
	_, err := wasi_snapshot_preview1.Instantiate(ctx, r)
	require.NoError(t, err)
	_, err = r.NewHostModuleBuilder("host").NewFunctionBuilder().
		WithFunc(func(x uint32) uint32 { return x + 1 }).Export("inc").Instantiate(ctx)
	require.NoError(t, err)
	return r
}

// instantiate returns an instance of a module. The instance has no name, so that one runtime can contain several
// instances.
func instantiate(t testing.TB, r wazero.Runtime, wasm []byte) api.Module {
	t.Helper()
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize")
	mod, err := r.InstantiateWithConfig(context.Background(), wasm, config)
	require.NoError(t, err)
	t.Cleanup(func() { _ = mod.Close(context.Background()) })
	return mod
}

func setFuel(mod api.Module, units int64) {
	mod.ExportedGlobal(fuel.GlobalName).(api.MutableGlobal).Set(uint64(units))
}

func fuelLeft(mod api.Module) int64 { return int64(mod.ExportedGlobal(fuel.GlobalName).Get()) }

func cause(mod api.Module) fuel.Cause {
	return fuel.Stopped(mod.ExportedGlobal(fuel.GlobalName).Get(), mod.ExportedGlobal(fuel.DepthName).Get())
}

func call(t testing.TB, mod api.Module, name string, args ...uint64) uint64 {
	t.Helper()
	results, err := mod.ExportedFunction(name).Call(context.Background(), args...)
	require.NoErrorf(t, err, "%s", name)
	if len(results) == 0 {
		return 0
	}
	return results[0]
}
