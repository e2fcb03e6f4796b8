// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel_test

import (
	"context"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host/fuel"
	"github.com/refract-project/refract/test/support/short"
)

// TestSameResults checks that a program, compiled by TinyGo and by Go, has the same results with and without fuel.
func TestSameResults(t *testing.T) {
	short.NeedTime(t, "a module built with Go")
	for _, compiler := range []struct {
		name string
		wasm []byte
	}{{"TinyGo", workload}, {"Go", goWorkload(t)}} {
		t.Run(compiler.name, func(t *testing.T) {
			r := runtime(t)
			bare := instantiate(t, r, compiler.wasm)
			opts := fuel.Options{Start: math.MaxInt64, MemoryPages: 4096}
			fueled := instantiate(t, r, instrument(t, compiler.wasm, opts))
			depth := fueled.ExportedGlobal(fuel.DepthName).Get()
			for _, w := range workloads {
				for n := range w.n {
					before := fuelLeft(fueled)
					want, got := call(t, bare, w.name, n+1), call(t, fueled, w.name, n+1)
					if want != got {
						t.Errorf("%s(%d) = %d, with fuel %d", w.name, n+1, want, got)
					}
					if fuelLeft(fueled) >= before {
						t.Errorf("%s(%d) was free", w.name, n+1)
					}
				}
			}
			if now := fueled.ExportedGlobal(fuel.DepthName).Get(); now != depth {
				t.Errorf("stack units went from %d to %d over calls that returned", depth, now)
			}
		})
	}
}

// goWorkload builds the workload with the Go compiler. Its code differs a lot from TinyGo's, which comes from LLVM.
func goWorkload(t *testing.T) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "workload.wasm")
	cmd := exec.Command("go", "build", "-buildmode=c-shared", "-o", out, "./testdata/workload")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=")
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the workload with Go: %v\n%s", err, msg)
	}
	wasm, err := os.ReadFile(out)
	require.NoError(t, err)
	return wasm
}

// TestRepeatable checks that the same module always results in the same bytes, so that compiled code can be cached.
func TestRepeatable(t *testing.T) {
	first, second := instrument(t, workload, fuel.Options{}), instrument(t, workload, fuel.Options{})
	if string(first) != string(second) {
		t.Error("two runs of the pass differ")
	}
}

// TestAlreadyInstrumented checks that a module that is already instrumented is rejected, because its counters would
// be under the control of the guest.
func TestAlreadyInstrumented(t *testing.T) {
	once := instrument(t, workload, fuel.Options{})
	if _, err := fuel.Instrument(once, fuel.Options{}); !isCollision(err) {
		t.Errorf("got %v, want a collision", err)
	}
}

// TestHostPaysFromTheSameCounter checks that the module stops earlier if the fuel is reduced from outside of it, as
// the host does for expensive calls.
func TestHostPaysFromTheSameCounter(t *testing.T) {
	mod := instantiate(t, runtime(t), instrument(t, assemble(t, read(t, "testdata/golden/loop.wat")), fuel.Options{}))
	setFuel(mod, 1000)
	if got := call(t, mod, "count", 10); got != 55 {
		t.Errorf("count(10) = %d", got)
	}
	// The module must have used fuel for the entry, ten passes of the loop and the last pass.
	if left := fuelLeft(mod); left != 1000-2-11*12 {
		t.Errorf("fuel left: %d", left)
	}
	setFuel(mod, fuelLeft(mod)-900)
	if _, err := mod.ExportedFunction("count").Call(context.Background(), 10); err == nil {
		t.Error("went on below zero")
	}
	if got := cause(mod); got != fuel.OutOfFuel {
		t.Errorf("cause %v", got)
	}
}
