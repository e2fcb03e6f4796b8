// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/test/support/short"
	"github.com/refract-project/refract/test/support/wattest"
)

// forgetful returns a plugin that counts its calls in its memory and behaves differently after the third call.
func forgetful(t testing.TB, later string) []byte {
	t.Helper()
	wasm, err := wattest.Assemble(wattest.Plugin(`{"name":"f","version":"1","kinds":["*"],"hooks":["outgoing"],"writes":["metadata.labels"]}`,
		`(import "refract" "warn" (func $warn (param i32 i32))) (import "refract" "fail" (func $fail (param i32 i32))) (import "refract" "int" (func $int (param i32 i32 i32 i64) (result i64))) (import "refract" "set_int" (func $set (param i32 i32 i32 i64)))`,
		`(data (i32.const 0) "once") (func (export "outgoing") (result i32)
		   (call $warn (i32.const 0) (i32.const 4))
		   (i32.store (i32.const 64) (i32.add (i32.load (i32.const 64)) (i32.const 1)))
		   (if (i32.gt_u (i32.load (i32.const 64)) (i32.const 3)) (then `+later+`))
		   (i32.const 0))`))
	require.NoError(t, err)
	return wasm
}

// TestLeakingPluginFailsNoObject checks that no object fails because of state that earlier calls have left.
func TestLeakingPluginFailsNoObject(t *testing.T) {
	for name, later := range map[string]string{
		"memory":         `(if (i32.eq (memory.grow (i32.const 300)) (i32.const -1)) (then (unreachable)))`,
		"fuel":           `(loop $l (br $l))`,
		"panic":          `(unreachable)`,
		"access":         `(drop (call $int (i32.const 77) (i32.const 0) (i32.const 4) (i64.const 0)))`,
		"forbidden edit": `(call $set (i32.const 1) (i32.const 0) (i32.const 4) (i64.const 7))`,
		"its word":       `(call $fail (i32.const 0) (i32.const 4)) (return (i32.const 1))`,
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			reports := 0
			h, err := New(t.Context(), NewConfig().WithLogger(slog.New(slog.NewTextHandler(&log, nil))).WithLeakReporter(func(plugin string, err error) {
				reports++
				if plugin != "leaky" || err == nil {
					t.Errorf("reported %s: %v", plugin, err)
				}
			}))
			require.NoError(t, err)
			t.Cleanup(func() { _ = h.Close(context.Background()) })
			p := mustLoad(t, h, "leaky", forgetful(t, later), PluginConfig{Limits: Limits{MemoryPages: 4}})
			chain, err := NewChain(Outgoing, DefaultGuard("Pod"), p)
			require.NoError(t, err)
			doc, env := document.New(), &Env{Domain: "shop", Measure: true}
			const calls = 20
			for n := range calls {
				doc.Reset(serviceObject())
				out, err := chain.Run(t.Context(), doc, env)
				if err != nil {
					t.Fatalf("call %d: %v", n, err)
				}
				if len(out.Warnings) != 1 || len(out.Calls) != 1 {
					t.Errorf("call %d: %d warnings, %d calls: those of the failed call are kept", n, len(out.Warnings), len(out.Calls))
				}
			}
			if got := p.Leaks(); got < 3 || got > calls/3 {
				t.Errorf("%d leaks", got)
			}
			if reports != 1 || strings.Count(log.String(), "fresh one") != 1 || !strings.Contains(log.String(), "leaky") {
				t.Errorf("reported %d times; log: %s", reports, log.String())
			}
		})
	}
}

// TestOwnFailureIsRepeatedOnce checks that the outcome of a plugin that always fails has its error and a single call,
// although the call is repeated in a fresh instance, and that the plugin is not reported as leaking.
func TestOwnFailureIsRepeatedOnce(t *testing.T) {
	p := mustLoad(t, newHost(t), "bad", forgetful(t, `(nop)) (else (unreachable)`), PluginConfig{})
	chain, err := NewChain(Outgoing, DefaultGuard("Pod"), p)
	require.NoError(t, err)
	doc, env := document.New(), &Env{Domain: "shop"}
	for range 3 {
		doc.Reset(serviceObject())
		var trap *TrapError
		if out, err := chain.Run(t.Context(), doc, env); !errors.As(err, &trap) || len(out.Calls) != 1 {
			t.Errorf("%v, %+v", err, out)
		}
	}
	if p.Leaks() != 0 {
		t.Error("it counts as leaking")
	}
}

// TestForbiddenEditIsJudgedOnce checks that if a plugin always makes a forbidden edit, the error comes from the guard,
// the edit is dropped, and the plugin is not reported as leaking.
func TestForbiddenEditIsJudgedOnce(t *testing.T) {
	h := newHost(t)
	p := mustLoad(t, h, "bad", assembleGuest("bad", `"metadata.labels"`, returnZero, set("spec.type", "x")), PluginConfig{})
	lenient := mustLoad(t, h, "lenient", assembleGuest("lenient", `"metadata.labels"`, returnZero, set("spec.type", "x")), PluginConfig{IgnoreFailure: true})
	for _, list := range [][]*Plugin{{p}, {lenient}} {
		chain, err := NewChain(Outgoing, DefaultGuard("Service"), list...)
		require.NoError(t, err)
		doc, env := document.New(), &Env{Domain: "shop"}
		for range 3 {
			doc.Reset(serviceObject())
			out, err := chain.Run(t.Context(), doc, env)
			if list[0] == lenient {
				require.NoError(t, err)
				err = out.Calls[0].Err
			}
			var refused *GuardError
			if !errors.As(err, &refused) || refused.Path != "spec.type" || len(out.Calls) != 1 || doc.Edited() {
				t.Errorf("%v, %+v", err, out)
			}
		}
		if list[0].Leaks() != 0 {
			t.Error("it counts as leaking")
		}
	}
}

// TestPortableTakesEveryObject checks that the example plugin, compiled by TinyGo and by Go, can mutate objects of the
// maximum size that API servers accept: with a large text, many small values, numbers or empty maps. An instance that
// has needed more memory than its own limit for such an object must not be kept.
func TestPortableTakesEveryObject(t *testing.T) {
	short.NeedTime(t, "the largest objects")
	small := map[string]any{}
	for n := range 65_000 {
		small[fmt.Sprintf("key-%06d", n)] = fmt.Sprintf("v%d", n)
	}
	numbers, empties := make([]any, 3<<18), make([]any, 1<<19)
	for n := range numbers {
		numbers[n] = int64(n % 10)
	}
	for n := range empties {
		empties[n] = map[string]any{}
	}
	h := newHost(t)
	for compiler, wasm := range map[string][]byte{"TinyGo": exampleModule(t), "Go": buildWithGo(t, "../examples/plugins/portable-team")} {
		p := mustLoad(t, h, "team", wasm, PluginConfig{
			Config: map[string]any{"team": "x"}, Kinds: []string{"ConfigMap"}, Writes: []string{"metadata.labels"},
		})
		for name, data := range map[string]map[string]any{"text": {"x": strings.Repeat("x", 3<<19)}, "values": small, "numbers": {"x": numbers}, "empty maps": {"x": empties}} {
			object := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "data": data}
			after, _, err := run(t, object, p)
			if err != nil {
				t.Errorf("%s, %s: %v", compiler, name, err)
				continue
			}
			if labels, _ := after["metadata"].(map[string]any)["labels"].(map[string]any); labels["team"] != "x" {
				t.Errorf("%s, %s: labels %v", compiler, name, labels)
			}
			if i := p.hot.Load(); i != nil && i.HasGrown() {
				t.Errorf("%s, %s: an instance of %d bytes is kept", compiler, name, i.MemorySize())
			}
		}
	}
}

func exampleModule(t testing.TB) []byte {
	t.Helper()
	wasm, err := os.ReadFile("../examples/plugins/portable-team/portable-team.wasm")
	require.NoError(t, err)
	return wasm
}
