// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package fuel_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/refract-project/refract/host/fuel"
)

// TestLimits checks that a module that exceeds a limit is rejected with an error that names the limit.
func TestLimits(t *testing.T) {
	many := func(n int, field string) string { return strings.Repeat(field, n) }
	few := fuel.Limits{
		Types: 3, Functions: 3, Parameters: 3, Locals: 3, FunctionBytes: 300, CompilerWork: 150, Nesting: 3, BranchTable: 3,
		Globals: 3, Tables: 1, TableElements: 3, Segments: 3,
	}
	tests := []struct{ what, source string }{
		{"function types", `(func) (func (param i32)) (func (param i64)) (func (param f32))`},
		{"functions", many(4, `(func)`)},
		{"imports", many(4, `(import "a" "b" (func))`)},
		{"exports", `(func $f)` + many(4, `(export "a" (func $f))`)},
		{"parameters of a function", `(func (param i32 i32 i32 i32))`},
		{"results of a function", `(func (result i32 i32 i32 i32) unreachable)`},
		{"locals of a function", `(func (param i32 i32) (local i32 i32))`},
		{"estimated microseconds of compiling", `(func (param i32 i32) (loop) (loop))`},
		{"bytes of a function", `(func ` + many(300, `nop `) + `)`},
		{"nesting of blocks", `(func (block (block (block (block)))))`},
		{"labels of a br_table", `(func (br_table 0 0 0 0 0 (i32.const 0)))`},
		{"globals", many(4, `(global i32 (i32.const 0))`)},
		{"tables", many(2, `(table 1 funcref)`)},
		{"initial table elements", `(table 4 funcref)`},
		{"elements of a segment", `(func $f) (table 1 funcref) (elem (i32.const 0) $f $f $f $f)`},
		{"data segments", `(memory 1)` + many(4, `(data (i32.const 0) "a")`)},
		{"initial memory pages", `(memory 3)`},
		{"stack units of nested calls", `(func (call 1)) (func (call 2)) (func)`},
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			wasm := assemble(t, "(module "+test.source+")")
			_, err := fuel.Instrument(wasm, fuel.Options{Limits: few, MemoryPages: 2, CallDepth: 2})
			var limit *fuel.LimitError
			if !errors.As(err, &limit) || !strings.HasPrefix(limit.What, test.what) || limit.Value <= limit.Max {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestGuestCannotReachTheCounters checks that modules are rejected if they use globals or locals that only Instrument
// adds.
func TestGuestCannotReachTheCounters(t *testing.T) {
	for _, source := range []string{
		`(func (global.set 0 (i64.const 1000000)))`,
		`(func (drop (global.get 0)))`,
		`(export "mine" (global 0))`,
		`(memory 1) (data (global.get 1) "x")`,
		`(global i32 (global.get 2))`,
		`(memory 1) (func (local i32) (memory.fill (i32.const 0) (i32.const 0) (i32.const 0)) (local.set 1 (i32.const 0)))`,
	} {
		var format *fuel.FormatError
		if _, err := fuel.Instrument(assemble(t, "(module "+source+")"), fuel.Options{}); !errors.As(err, &format) {
			t.Errorf("%s: got %v", source, err)
		}
	}
}

func TestReservedNames(t *testing.T) {
	for _, name := range []string{fuel.GlobalName, fuel.DepthName} {
		_, err := fuel.Instrument(assemble(t, fmt.Sprintf(`(module (func (export %q)))`, name)), fuel.Options{})
		if !isCollision(err) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestUnsupported(t *testing.T) {
	head := "\x00asm\x01\x00\x00\x00"
	// code returns a module with one function without parameters.
	code := func(body string) string {
		body = "\x00" + body + "\x0b"
		return head + "\x01\x04\x01\x60\x00\x00" + "\x03\x02\x01\x00" +
			"\x0a" + string(rune(len(body)+2)) + "\x01" + string(rune(len(body))) + body
	}
	for feature, wasm := range map[string]string{
		"tail calls":                code("\x12\x00"),
		"exception handling":        code("\x08\x00"),
		"threads":                   code("\xfe\x00"),
		"garbage collection":        code("\xfb\x00"),
		"typed function references": code("\x14\x00"),
		"relaxed SIMD":              code("\xfd\x80\x02"),
		"more than one memory":      code("\x28\x42\x00"),
		"import of kind 2":          head + "\x02\x08\x01\x01a\x01b\x02\x00\x01",
		"shared or 64-bit memory":   head + "\x05\x04\x01\x03\x01\x01",
		"type of form 0x5f":         head + "\x01\x03\x01\x5f\x00",
	} {
		var unsupported *fuel.UnsupportedError
		_, err := fuel.Instrument([]byte(wasm), fuel.Options{})
		if !errors.As(err, &unsupported) || !strings.HasPrefix(unsupported.Feature, feature) {
			t.Errorf("%s: got %v", feature, err)
		}
	}
}

// TestTruncated checks that Instrument does not panic if a real module was truncated at any of many positions, and
// returns only errors with the types of this package.
func TestTruncated(t *testing.T) {
	for n := 0; n < len(workload); n += 1 + n/50 {
		if _, err := fuel.Instrument(workload[:n], fuel.Options{}); err != nil && !typed(err) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// TestAnnouncedSizes checks that a binary is rejected if its counts would make a careless reader allocate gigabytes.
func TestAnnouncedSizes(t *testing.T) {
	big := "\xff\xff\xff\xff\x0f"
	head := "\x00asm\x01\x00\x00\x00"
	for _, wasm := range []string{
		head + "\x01\x05" + big,
		head + "\x01" + big,
		head + "\x0b\x05" + big,
		head + "\x09\x05" + big,
		head + "\x01\x04\x01\x60\x00\x00" + "\x03\x02\x01\x00" + "\x0a\x0b\x01\x09\x01" + big + "\x7f\x0b\x00",
	} {
		if _, err := fuel.Instrument([]byte(wasm), fuel.Options{}); !typed(err) {
			t.Errorf("%q: got %v", wasm, err)
		}
	}
}
