// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/refract-project/refract/host/fuel"
	"github.com/refract-project/refract/test/support/short"
)

func isCollision(err error) bool {
	var collision *fuel.CollisionError
	return errors.As(err, &collision)
}

// endless is a program that never ends on its own. Each iteration changes the memory.
const endless = `(module
  (memory (export "memory") 1)
  (func $step (param $n i32) (result i32)
    (i32.store (i32.const 0) (local.get $n))
    (if (i32.and (local.get $n) (i32.const 1))
      (then (i32.store (i32.const 8) (i32.mul (local.get $n) (i32.const 3)))))
    (i32.add (local.get $n) (i32.const 1)))
  (func (export "run") (local $n i32)
    (loop $next
      (local.set $n (call $step (local.get $n)))
      (i32.store (i32.const 4) (local.get $n))
      (br $next))))`

// state is the visible state of a module after it was stopped.
type state struct {
	cause  fuel.Cause
	fuel   int64
	memory string
}

func stop(t *testing.T, r wazero.Runtime, wasm []byte, units int64) state {
	t.Helper()
	mod := instantiate(t, r, wasm)
	setFuel(mod, units)
	if _, err := mod.ExportedFunction("run").Call(context.Background()); err == nil {
		t.Fatal("an endless loop returned")
	}
	memory, _ := mod.Memory().Read(0, 16)
	return state{cause(mod), fuelLeft(mod), string(memory)}
}

// TestStopsAtTheSameInstruction checks that a program always stops at the same instruction: in a second instance,
// after another compilation, and in wazero's other engine, the interpreter.
func TestStopsAtTheSameInstruction(t *testing.T) {
	wasm := instrument(t, assemble(t, endless), fuel.Options{})
	ctx := context.Background()
	interpreter := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	defer func() { _ = interpreter.Close(ctx) }()
	once, again := runtime(t), runtime(t)
	seen := map[state]bool{}
	for units := int64(0); units < 200; units++ {
		first := stop(t, once, wasm, units)
		if first.cause != fuel.OutOfFuel {
			t.Fatalf("%d units: cause %v", units, first.cause)
		}
		for name, r := range map[string]wazero.Runtime{"second instance": once, "recompiled": again, "interpreter": interpreter} {
			if got := stop(t, r, wasm, units); got != first {
				t.Errorf("%d units, %s: stopped at %+v, at first %+v", units, name, got, first)
			}
		}
		seen[first] = true
	}
	if len(seen) < 20 {
		t.Errorf("only %d different stops in 200 budgets", len(seen))
	}
}

func TestRecursionStops(t *testing.T) {
	tests := map[string]string{
		"direct":   `(func $f (export "run") (call $f))`,
		"mutual":   `(func $f (export "run") (call $g)) (func $g (call $f))`,
		"indirect": `(table 1 funcref) (elem (i32.const 0) $f) (func $f (export "run") (call_indirect (i32.const 0)))`,
		"behind a chain": `(table 1 funcref) (elem (i32.const 0) $f)
			(func $f (export "run") (call $g)) (func $g (call $h)) (func $h (call_indirect (i32.const 0)))`,
	}
	for name, fields := range tests {
		t.Run(name, func(t *testing.T) {
			mod := instantiate(t, runtime(t), instrument(t, assemble(t, "(module "+fields+")"), fuel.Options{}))
			_, err := mod.ExportedFunction("run").Call(context.Background())
			if err == nil || strings.Contains(err.Error(), "stack overflow") {
				t.Fatalf("got %v, want our own stop before the engine's", err)
			}
			if got := cause(mod); got != fuel.OutOfStack {
				t.Errorf("cause %v (%v)", got, err)
			}
		})
	}
}

// TestPlainTrap checks that an ordinary trap is not reported as a limit.
func TestPlainTrap(t *testing.T) {
	mod := instantiate(t, runtime(t), instrument(t, assemble(t, `(module (func (export "run") unreachable))`), fuel.Options{}))
	if _, err := mod.ExportedFunction("run").Call(context.Background()); err == nil || cause(mod) != fuel.NotStopped {
		t.Errorf("err %v, cause %v", err, cause(mod))
	}
}

// TestBulkInstructionsPay checks that instructions that do a lot of work at once run out of fuel.
func TestBulkInstructionsPay(t *testing.T) {
	body := map[string]string{
		"memory.fill": `(memory.fill (i32.const 0) (i32.const 1) (i32.const 65536))`,
		"memory.copy": `(memory.copy (i32.const 0) (i32.const 1) (i32.const 65535))`,
		"memory.grow": `(drop (memory.grow (i32.const 1)))`,
		"table.grow":  `(drop (table.grow (ref.null func) (i32.const 8000)))`,
		"table.fill":  `(table.fill (i32.const 0) (ref.null func) (i32.const 8000))`,
	}
	for name, code := range body {
		t.Run(name, func(t *testing.T) {
			source := fmt.Sprintf(`(module (memory 1) (table 8000 funcref) (func (export "run") %s))`, code)
			mod := instantiate(t, runtime(t), instrument(t, assemble(t, source), fuel.Options{}))
			setFuel(mod, 7000)
			if _, err := mod.ExportedFunction("run").Call(context.Background()); err == nil || cause(mod) != fuel.OutOfFuel {
				t.Errorf("with 7000 units: err %v, cause %v", err, cause(mod))
			}
			setFuel(mod, 9000)
			if _, err := mod.ExportedFunction("run").Call(context.Background()); err != nil {
				t.Errorf("with 9000 units: %v", err)
			}
		})
	}
}

// TestStartFunctionPays checks that Options.Start limits a start function, because the host can set the counter only
// later.
func TestStartFunctionPays(t *testing.T) {
	wasm := instrument(t, assemble(t, `(module (func $f (loop $l (br $l))) (start $f))`), fuel.Options{Start: 1000})
	r := runtime(t)
	if _, err := r.InstantiateWithConfig(context.Background(), wasm, wazero.NewModuleConfig().WithName("")); err == nil {
		t.Error("an endless start function returned")
	}
}

// TestMemoryStopsGrowing checks that memory cannot grow beyond the page limit or the module's own limit, whichever is
// lower.
func TestMemoryStopsGrowing(t *testing.T) {
	for declared, want := range map[string]uint64{`(memory 1)`: 8, `(memory 1 4)`: 4, `(memory 1 4000)`: 8} {
		source := fmt.Sprintf(`(module %s (func (export "run") (result i32)
			(loop $l (br_if $l (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) (memory.size)))`, declared)
		mod := instantiate(t, runtime(t), instrument(t, assemble(t, source), fuel.Options{MemoryPages: 8}))
		if got := call(t, mod, "run"); api.DecodeU32(got) != uint32(want) {
			t.Errorf("%s grew to %d pages, want %d", declared, got, want)
		}
	}
}

// TestNothingRunsUnpaid checks that generated programs never use less fuel than the instructions that they have
// executed cost, because a charge covers the longest path to the next charge.
func TestNothingRunsUnpaid(t *testing.T) {
	short.NeedTime(t, "hundreds of generated modules")
	r := runtime(t)
	exactly, taken := int64(0), int64(0)
	for seed := range uint64(300) {
		wasm := assemble(t, generate(seed))
		exact, err := fuel.InstrumentExactly(wasm, fuel.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ran, paid := instantiate(t, r, exact), instantiate(t, r, instrument(t, wasm, fuel.Options{}))
		for i := range generatedFuncs {
			for _, arg := range []uint64{0, 1, 77} {
				setFuel(ran, 2_000_000)
				setFuel(paid, 2_000_000)
				name := fmt.Sprintf("f%d", i)
				_, err1 := ran.ExportedFunction(name).Call(context.Background(), arg, 9)
				_, err2 := paid.ExportedFunction(name).Call(context.Background(), arg, 9)
				if err1 != nil || err2 != nil {
					// The program cannot be compared, because it has trapped or runs too long.
					continue
				}
				if fuelLeft(paid) > fuelLeft(ran) {
					t.Fatalf("seed %d, %s(%d): %d units were run and %d paid\n%s", seed, name, arg, 2_000_000-fuelLeft(ran), 2_000_000-fuelLeft(paid), generate(seed))
				}
				exactly, taken = exactly+2_000_000-fuelLeft(ran), taken+2_000_000-fuelLeft(paid)
			}
		}
	}
	if taken > 2*exactly {
		t.Errorf("%d units were paid for %d that were run", taken, exactly)
	}
}
