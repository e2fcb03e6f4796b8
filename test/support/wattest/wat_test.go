// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package wattest_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero"

	"github.com/refract-project/refract/test/support/wattest"
)

// TestBytes compares a module with the expected binary, which was written by hand according to the specification.
func TestBytes(t *testing.T) {
	got, err := wattest.Assemble(`(module ;; adds
	  (func (export "add") (param $a i32) (param i32) (result i32)
	    (i32.add (local.get $a) (local.get 1))))`)
	require.NoError(t, err)
	want := []byte("\x00asm\x01\x00\x00\x00" +
		"\x01\x07\x01\x60\x02\x7f\x7f\x01\x7f" + // type section: i32 i32 -> i32
		"\x03\x02\x01\x00" + // function section: one function of type 0
		"\x07\x07\x01\x03add\x00\x00" +
		"\x0a\x09\x01\x07\x00\x20\x00\x20\x01\x6a\x0b")
	if !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

// TestRuns assembles a module with most of the supported constructs, and runs it with an engine.
func TestRuns(t *testing.T) {
	wasm, err := wattest.Assemble(`(module
	  (import "env" "twice" (func $twice (param i32) (result i32)))
	  (memory $m (export "memory") 1 2)
	  (table 2 funcref)
	  (elem (i32.const 1) $pick)
	  (global $count (mut i32) (i32.const -1))
	  (data (i32.const 16) "a\00\"\n" "\ff")
	  (func $pick (param $x i32) (result i32)
	    block $two
	      block $one
	        block $zero
	          local.get $x
	          br_table $zero $one $two
	        end
	        i32.const 100
	        return
	      end
	      i32.const 200
	      return
	    end
	    i32.const 0x12c)
	  (func (export "run") (param $n i32) (result i32) (local $sum i32) (local $wide i64)
	    (loop $next
	      (local.set $sum (i32.add (local.get $sum)
	        (call_indirect (param i32) (result i32) (local.get $n) (i32.const 1))))
	      (if (i32.eqz (local.get $n)) (then (global.set $count (i32.add (global.get $count) (i32.const 1))))
	        (else
	          (local.set $n (i32.sub (local.get $n) (i32.const 1)))
	          (br $next))))
	    (i32.add
	      (call $twice (local.get $sum))
	      (i32.add (i32.load8_u offset=4 (i32.const 16)) (global.get $count)))))`)
	require.NoError(t, err)
	ctx := context.Background()
	r := wazero.NewRuntime(ctx)
	defer func() { _ = r.Close(ctx) }()
	twice := func(x uint32) uint32 { return 2 * x }
	_, err = r.NewHostModuleBuilder("env").NewFunctionBuilder().WithFunc(twice).Export("twice").Instantiate(ctx)
	require.NoError(t, err)
	mod, err := r.Instantiate(ctx, wasm)
	require.NoError(t, err)
	got, err := mod.ExportedFunction("run").Call(ctx, 2)
	if err != nil || got[0] != 2*(300+200+100)+255 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	for source, want := range map[string]string{
		"(module\n (func\n  (i32.plus)))":   `line 3: unknown instruction "i32.plus"`,
		"(module\n (func (local.get $x)))":  "line 2: unknown name $x",
		"(module\n (func (br $l)))":         "line 2: unknown label $l",
		"(module (func (i32.const 1x)))":    `line 1: "1x" is no 32-bit number`,
		"(module (func)":                    "line 1: missing )",
		"(module))":                         "line 1: unexpected )",
		"(module\n\n(memry 1))":             `line 3: unknown field "memry"`,
		"(module (func (param i31)))":       `line 1: unknown type "i31"`,
		"(module (data (i32.const 0) \"a))": "line 1: string without end",
		"module":                            "want one (module",
	} {
		if _, err := wattest.Assemble(source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot %v, want %s", source, err, want)
		}
	}
}
