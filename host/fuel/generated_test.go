// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero/api"

	"github.com/refract-project/refract/host/fuel"
	"github.com/refract-project/refract/test/support/short"
)

// generator writes random programs that always end: loops count down, functions call only later functions, and one
// function recurses with a smaller argument.
type generator struct {
	*rand.Rand
	b     strings.Builder
	funcs int
	self  int
	loops int
	label int
}

const generatedFuncs = 5

func generate(seed uint64) string {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), funcs: generatedFuncs}
	g.b.WriteString(`(module (import "host" "inc" (func $inc (param i32) (result i32)))
  (memory (export "memory") 1) (table 5 funcref) (global $g (mut i32) (i32.const 3))
  (elem (i32.const 0) $f0 $f1 $f2 $f3 $f4)
`)
	for i := range g.funcs {
		g.self, g.loops, g.label = i, 0, 0
		fmt.Fprintf(&g.b, "(func $f%d (export \"f%d\") (param $a i32) (param $b i32) (result i32) (local $x i32) (local $c0 i32) (local $c1 i32)\n", i, i)
		for range 1 + g.IntN(5) {
			g.statement(3)
		}
		g.b.WriteString(g.value(3) + ")\n")
	}
	return g.b.String() + ")"
}

func (g *generator) statement(depth int) {
	g.label++
	label := fmt.Sprintf("$l%d", g.label)
	switch k := g.IntN(9); {
	case k == 0 && depth > 0:
		fmt.Fprintf(&g.b, "(if %s (then ", g.value(2))
		g.statement(depth - 1)
		g.b.WriteString(") (else ")
		g.statement(depth - 1)
		g.b.WriteString("))\n")
	case k == 1 && depth > 0 && g.loops < 2:
		counter := fmt.Sprintf("$c%d", g.loops)
		g.loops++
		fmt.Fprintf(&g.b, "(local.set %s (i32.const %d)) (block %sx (loop %s\n", counter, g.IntN(6), label, label)
		g.statement(depth - 1)
		fmt.Fprintf(&g.b, "(br_if %sx (i32.eqz (local.get %s)))", label, counter)
		fmt.Fprintf(&g.b, "(local.set %s (i32.sub (local.get %s) (i32.const 1)))\n", counter, counter)
		g.statement(depth - 1)
		fmt.Fprintf(&g.b, "(br %s)))\n", label)
		g.loops--
	case k == 2 && depth > 0 && g.IntN(2) == 0:
		fmt.Fprintf(&g.b, "(block %s (block %sx (block %sy (br_table %s %sx %sy %s))", label, label, label, label, label, label, g.value(2))
		g.statement(depth - 1)
		g.b.WriteString(")\n")
		g.statement(depth - 1)
		g.b.WriteString(")\n")
	case k == 2 && depth > 0:
		fmt.Fprintf(&g.b, "(block %s ", label)
		g.statement(depth - 1)
		fmt.Fprintf(&g.b, "(br_if %s %s)", label, g.value(2))
		g.statement(depth - 1)
		g.b.WriteString(")\n")
	case k == 3 && g.IntN(4) == 0:
		fmt.Fprintf(&g.b, "(if %s (then (return %s)))\n", g.value(2), g.value(1))
	case k == 4:
		fmt.Fprintf(&g.b, "(memory.copy %s %s (i32.const %d))\n", g.address(), g.address(), g.IntN(64))
	case k == 5:
		fmt.Fprintf(&g.b, "(i32.store %s %s)\n", g.address(), g.value(2))
	case k == 6:
		fmt.Fprintf(&g.b, "(global.set $g %s)\n", g.value(2))
	default:
		fmt.Fprintf(&g.b, "(local.set %s %s)\n", g.pick("$a", "$b", "$x"), g.value(depth))
	}
}

func (g *generator) pick(of ...string) string { return of[g.IntN(len(of))] }

func (g *generator) address() string { return "(i32.and " + g.value(1) + " (i32.const 255))" }

func (g *generator) value(depth int) string {
	if depth == 0 {
		return g.pick("(local.get $a)", "(local.get $b)", "(local.get $x)", "(global.get $g)",
			fmt.Sprintf("(i32.const %d)", g.IntN(10)-3))
	}
	later := g.self + 1 + g.IntN(max(1, g.funcs-g.self-1))
	switch k := g.IntN(12); {
	case k == 0 && later < g.funcs:
		return fmt.Sprintf("(call $f%d %s %s)", later, g.value(depth-1), g.value(depth-1))
	case k == 1 && later < g.funcs:
		return fmt.Sprintf("(call_indirect (param i32) (param i32) (result i32) %s %s (i32.const %d))", g.value(depth-1), g.value(depth-1), later)
	// The function calls itself with a smaller argument, so that the recursion ends.
	case k == 2 && g.loops == 0:
		return fmt.Sprintf("(if (result i32) (i32.gt_u (local.get $a) (i32.const 5)) (then (call $f%d (i32.shr_u (local.get $a) (i32.const 2)) %s)) (else %s))",
			g.self, g.value(depth-1), g.value(depth-1))
	case k == 3:
		return "(call $inc " + g.value(depth-1) + ")"
	case k == 4:
		return "(i32.load " + g.address() + ")"
	default:
		op := g.pick("i32.add", "i32.sub", "i32.mul", "i32.xor", "i32.div_u", "i32.rem_s", "i32.rotl", "i32.lt_s")
		return fmt.Sprintf("(%s %s %s)", op, g.value(depth-1), g.value(depth-1))
	}
}

// outcome returns all visible results of a program: return values, traps, and the memory.
func outcome(t *testing.T, mod api.Module, limit int64) (out []string, stopped bool) {
	t.Helper()
	for i := range generatedFuncs {
		for _, arg := range []uint64{0, 1, 77} {
			if limit > 0 {
				setFuel(mod, limit)
			}
			ctx, cancel := context.WithCancel(context.Background())
			results, err := mod.ExportedFunction(fmt.Sprintf("f%d", i)).Call(ctx, arg, 9)
			cancel()
			if limit > 0 && cause(mod) != fuel.NotStopped {
				return out, true
			}
			kind := ""
			if err != nil {
				kind, _, _ = strings.Cut(err.Error(), "\n")
			}
			out = append(out, fmt.Sprintf("f%d(%d) = %v %s", i, arg, results, kind))
		}
	}
	memory, _ := mod.Memory().Read(0, 1024)
	return append(out, fmt.Sprintf("%x", memory)), false
}

// agree checks that a generated program has the same outcome with and without fuel. It runs the program without fuel
// only if the program ends.
func agree(t *testing.T, seed uint64) (stopped bool) {
	source := generate(seed)
	wasm := assemble(t, source)
	r := runtime(t)
	got, stopped := outcome(t, instantiate(t, r, instrument(t, wasm, fuel.Options{})), 2_000_000)
	if stopped {
		// The program is not run without fuel, because it would run too long without a limit.
		return true
	}
	want, _ := outcome(t, instantiate(t, r, wasm), 0)
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("seed %d: with fuel %s\nwithout %s\n%s", seed, got[i], want[i], source)
		}
	}
	return false
}

func TestGeneratedProgramsAgree(t *testing.T) {
	short.NeedTime(t, "hundreds of generated modules")
	stopped := 0
	const programs = 300
	for seed := range uint64(programs) {
		if agree(t, seed) {
			stopped++
		}
	}
	if stopped > programs/4 {
		t.Errorf("%d of %d programs were too long to compare", stopped, programs)
	}
}

func FuzzGeneratedProgramsAgree(f *testing.F) {
	for _, seed := range []uint64{1, 42, 1 << 40} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) { agree(t, seed) })
}
