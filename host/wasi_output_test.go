// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/test/support/short"
	"github.com/refract-project/refract/test/support/wattest"
)

// wasiGuest runs body with the functions that runtimes use to sleep and to panic. $write writes 5 bytes at an
// address.
func wasiGuest(t testing.TB, data, body string) []byte {
	t.Helper()
	wasm, err := wattest.Assemble(wattest.Plugin(`{"name":"w","version":"1","kinds":["*"],"hooks":["outgoing"],"writes":["metadata.labels"]}`,
		`(import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
		 (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
		 (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
		 (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))`,
		`(data (i32.const 0) "`+data+`")
		 (func $say (param $file i32) (param $at i32)
		   (i32.store (i32.const 512) (local.get $at)) (i32.store (i32.const 516) (i32.const 5))
		   (drop (call $write (local.get $file) (i32.const 512) (i32.const 1) (i32.const 520))))
		 (func (export "outgoing") (result i32) `+body+` (i32.const 0))`))
	require.NoError(t, err)
	return wasm
}

// TestSleepReturns checks that a sleep returns at once and advances the clock, so that a loop that waits for a time
// ends.
func TestSleepReturns(t *testing.T) {
	p := mustLoad(t, newHost(t), "w", wasiGuest(t, "", `
		(drop (call $clock (i32.const 0) (i64.const 0) (i32.const 256)))
		(i64.store (i32.const 128) (i64.const 7777)) ;; user data
		(i64.store (i32.const 152) (i64.const 1500)) ;; a clock, for 1500 ns
		(if (call $poll (i32.const 128) (i32.const 320) (i32.const 1) (i32.const 400)) (then (unreachable)))
		(drop (call $clock (i32.const 0) (i64.const 0) (i32.const 264)))
		(if (i64.ne (i64.sub (i64.load (i32.const 264)) (i64.load (i32.const 256))) (i64.const 1500)) (then (unreachable)))
		(if (i64.ne (i64.load (i32.const 320)) (i64.const 7777)) (then (unreachable)))
		(if (i32.ne (i32.load (i32.const 400)) (i32.const 1)) (then (unreachable)))
		(if (i64.ne (i64.load (i32.const 256)) (i64.const 1640995200000000000)) (then (unreachable)))`), PluginConfig{})
	// The second call must have the same result, because the clock is reset together with the instance.
	for range 2 {
		_, _, err := run(t, serviceObject(), p)
		require.NoError(t, err)
	}
}

// TestTextOfAPanic checks that the text of a panic, which runtimes write in several parts, is a single line of the
// log and is part of the error.
func TestTextOfAPanic(t *testing.T) {
	for name, end := range map[string]string{"exit": `(call $exit (i32.const 2))`, "trap": `(unreachable)`} {
		var log strings.Builder
		h, err := New(t.Context(), NewConfig().WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(t, err)
		t.Cleanup(func() { _ = h.Close(context.Background()) })
		p := mustLoad(t, h, "w", wasiGuest(t, `panic: no  team!\n\nst`, `
			(call $say (i32.const 2) (i32.const 0)) (call $say (i32.const 2) (i32.const 5))
			(call $say (i32.const 2) (i32.const 10)) (call $say (i32.const 2) (i32.const 15)) `+end), PluginConfig{})
		_, _, err = run(t, serviceObject(), p)
		if err == nil || !strings.Contains(err.Error(), "panic: no team!") || len(err.Error()) > 2000 {
			t.Errorf("%s: %v", name, err)
		}
		if got := log.String(); !strings.Contains(got, `level=WARN msg="panic: no  team!" plugin=w`) || strings.Count(got, "msg=") != 2 {
			t.Errorf("%s: log %s", name, got)
		}
	}
}

// TestPanicBehindAPartialLine checks that the text of a panic is found after output without a newline.
func TestPanicBehindAPartialLine(t *testing.T) {
	p := mustLoad(t, newHost(t), "w", wasiGuest(t, `work.panic: x!!\n`, `
		(call $say (i32.const 2) (i32.const 0)) (call $say (i32.const 2) (i32.const 5))
		(call $say (i32.const 2) (i32.const 10)) (call $say (i32.const 2) (i32.const 15)) (unreachable)`), PluginConfig{})
	_, _, err := run(t, serviceObject(), p)
	if err == nil || !strings.Contains(err.Error(), "panic: x!!") || strings.Contains(err.Error(), "work.") {
		t.Errorf("%v, want the text of the panic", err)
	}
}

// TestGoBuildSleepsAndPanics checks that the text of a panic of a plugin that was built with Go is in the error and in
// the log. The Go runtime sleeps before it prints a panic, so that its other threads stop.
func TestGoBuildSleepsAndPanics(t *testing.T) {
	short.NeedTime(t, "a module built with Go")
	var log strings.Builder
	h, err := New(t.Context(), NewConfig().WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.Close(context.Background()) })
	p := mustLoad(t, h, "panicky", buildWithGo(t, "./testdata/panicky"), PluginConfig{})
	_, _, err = run(t, map[string]any{"kind": "Service"}, p)
	require.NoError(t, err)
	_, _, err = run(t, map[string]any{"kind": "ConfigMap"}, p)
	const text = "panic: no team label on this object"
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%v, want the text of the panic", err)
	}
	if got := log.String(); !strings.Contains(got, `level=WARN msg="`+text) || strings.Count(got, "msg=") > 50 {
		t.Errorf("log %s", got)
	}
}
