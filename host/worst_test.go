// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero/api"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/test/support/wattest"
)

// Each guest in this test calls one function of the ABI in an endless loop, with the arguments that make it most
// expensive. The cost is a ratio: the time for a unit of fuel, divided by the time in a guest that only counts. Both
// are measured in the same run.

const (
	hugeList = 20_000
	hugeText = 1 << 20
)

func worstObject() map[string]any {
	list, keys, long := make([]any, hugeList), map[string]any{}, map[string]any{}
	for n := range list {
		list[n] = map[string]any{"a": "x"}
	}
	for n := range 20_000 {
		keys[fmt.Sprintf("key-%06d", n)] = int64(n)
	}
	for n := range 64 {
		long[strings.Repeat("k", 10_000)+fmt.Sprintf("%03d", n)] = "v"
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Thing", "metadata": map[string]any{"name": "n", "labels": map[string]any{}},
		"list": list, "keys": keys, "long": long, "text": strings.Repeat("t", hugeText), "deep": deep(505), "ip": "10.0.0.1",
	}
}

func deep(n int) any {
	v := any("bottom")
	for range n {
		v = map[string]any{"a": v}
	}
	return v
}

// texts assigns addresses in the memory of the guest to the texts that the calls need, and collects the data segments
// with these texts.
type texts struct {
	at   int
	data strings.Builder
}

func (x *texts) add(s string) string {
	fmt.Fprintf(&x.data, "(data (i32.const %d) %q)\n", x.at, s)
	ref := fmt.Sprintf("(i32.const %d) (i32.const %d)", x.at, len(s))
	x.at += len(s)
	return ref
}

// worst returns the text of the most expensive call for each function and special case. $n in the text stands for the
// number of the call.
func worst() map[string]func(x *texts) (call string) {
	path := func(p string) func(string) func(*texts) string {
		return func(call string) func(*texts) string {
			return func(x *texts) string { return fmt.Sprintf(call, x.add(p)) }
		}
	}
	long := "deep" + strings.Repeat(".a", 500)
	missing := "deep" + strings.Repeat(".a", 499) + ".z"
	buffer := "(i32.const 1000000) (i32.const 4000000)"
	wide := strings.TrimSuffix(strings.Repeat("list.*.b\n", 5000), "\n")
	glob := strings.TrimSuffix(strings.Repeat("*k*k*k*k*k*k*kz\n", 1000), "\n")
	return map[string]func(*texts) string{
		"kind": path(long)("(drop (call $kind (i32.const 1) %s))"),
		"len":  path(long)("(drop (call $len (i32.const 1) %s))"),
		"get":  path(long)("(drop (call $get (i32.const 1) %s))"),
		"field": func(x *texts) string {
			return "(drop (call $field (i32.const 1) (i32.const 1000000) (i32.const 1000000)))"
		},
		"elem":      path("list")("(drop (call $elem (call $get (i32.const 1) %s) (i32.const 19999)))"),
		"string":    path("text")("(drop (call $string (i32.const 1) %s " + buffer + "))"),
		"string_eq": path("text")("(drop (call $string_eq (i32.const 1) %s (i32.const 1000000) (i32.const 1048576)))"),
		"int":       path(missing)("(drop (call $int (i32.const 1) %s (i64.const 0)))"),
		"float":     path(missing)("(drop (call $float (i32.const 1) %s (f64.const 0)))"),
		"bool":      path(missing)("(drop (call $bool (i32.const 1) %s (i32.const 0)))"),
		"keys":      path("keys")("(drop (call $keys (i32.const 1) %s " + buffer + "))"),
		"keys long": path("long")("(drop (call $keys (i32.const 1) %s " + buffer + "))"),
		// Each call is followed by a write, which invalidates the cached encoding.
		"json": func(x *texts) string {
			return fmt.Sprintf("(drop (call $json (i32.const 1) %s %s)) (call $set_int (i32.const 1) %s (local.get $n))", x.add("keys"), buffer, x.add("other"))
		},
		"set_string": path("status.x")("(call $set_string (i32.const 1) %s (i32.const 1000000) (i32.const 100))"),
		"set_int":    path("status" + strings.Repeat(".b", 500))("(call $set_int (i32.const 1) %s (local.get $n))"),
		"set_float":  path("status.x")("(call $set_float (i32.const 1) %s (f64.convert_i64_s (local.get $n)))"),
		"set_bool":   path("status.x")("(call $set_bool (i32.const 1) %s (i32.wrap_i64 (local.get $n)))"),
		"set_null":   path("status.x")("(call $set_null (i32.const 1) %s)"),
		"set_map":    path("status.x")("(drop (call $set_map (i32.const 1) %s))"),
		"set_list":   path("status.x")("(drop (call $set_list (i32.const 1) %s))"),
		"ensure_map": path("status" + strings.Repeat(".c", 500))("(drop (call $ensure_map (i32.const 1) %s))"),
		"set_json": func(x *texts) string {
			json := "[" + strings.TrimSuffix(strings.Repeat("[],", 5000), ",") + "]"
			return fmt.Sprintf("(call $set_json (i32.const 1) %s %s)", x.add("status.x"), x.add(json))
		},
		"copy": func(x *texts) string {
			return fmt.Sprintf("(call $copy (i32.const 1) %s (call $get (i32.const 1) %s))", x.add("status.x"), x.add("deep"))
		},
		"remove":      path(wide)("(drop (call $remove (i32.const 1) %s))"),
		"remove_elem": path("list")("(call $remove_elem (call $get (i32.const 1) %s) (i32.const 0))"),
		"remove_keys": func(x *texts) string {
			return fmt.Sprintf("(drop (call $remove_keys (i32.const 1) %s (i32.const 3) %s))", x.add("long"), x.add("globs"))
		},
		"remove_keys_glob": func(x *texts) string {
			return fmt.Sprintf("(drop (call $remove_keys_glob (i32.const 1) %s %s))", x.add("long"), x.add(glob))
		},
		"log":      func(x *texts) string { return "(call $log (i32.const 1) (i32.const 1000000) (i32.const 16))" },
		"warn":     func(x *texts) string { return "(call $warn (i32.const 1000000) (i32.const 16))" },
		"skip":     func(x *texts) string { return "(call $skip (i32.const 1000000) (i32.const 16))" },
		"fail":     func(x *texts) string { return "(call $fail (i32.const 1000000) (i32.const 16))" },
		"remap_ip": func(x *texts) string { return "(drop (call $remap_ip " + x.add("10.0.0.1") + " " + buffer + "))" },
	}
}

func signatureText(f api.FunctionDefinition) string {
	name := map[byte]string{i32: "i32", i64: "i64", f64: "f64"}
	var b strings.Builder
	for _, p := range f.ParamTypes() {
		b.WriteString(" (param " + name[p] + ")")
	}
	for _, r := range f.ResultTypes() {
		b.WriteString(" (result " + name[r] + ")")
	}
	return b.String()
}

// looping returns a guest that repeats the call forever.
func looping(t *testing.T, call string, x *texts) []byte {
	t.Helper()
	var imports strings.Builder
	for name, f := range hostFunctions()[moduleRefract] {
		fmt.Fprintf(&imports, "(import \"refract\" %q (func $%s%s))\n", name, name, signatureText(f))
	}
	source := wattest.Plugin(`{"name":"worst","version":"1","kinds":["*"],"hooks":["outgoing"],"writes":["*"],"capabilities":["skip"]}`, imports.String(), `
	  (func (export "outgoing") (result i32) (local $n i64)
	    (memory.fill (i32.const 1000000) (i32.const 116) (i32.const 1048576))
	    (loop $more
	      (local.set $n (i64.add (local.get $n) (i64.const 1)))
	      `+call+`
	      (br $more))
	    (i32.const 0))`+x.data.String())
	wasm, err := wattest.Assemble(strings.Replace(source, `(memory (export "memory") 1)`, `(memory (export "memory") 90)`, 1))
	require.NoError(t, err)
	return wasm
}

// perUnit returns the minimum time for a unit of fuel in several runs. A run ends when its fuel is used up, or at
// another limit.
func perUnit(t *testing.T, h *Host, object map[string]any, wasm []byte) float64 {
	t.Helper()
	p := mustLoad(t, h, "worst", wasm, PluginConfig{
		Limits: Limits{Fuel: 10_000_000, OutputBytes: 64 << 20, Handles: 1 << 19, MemoryPages: 200},
		Config: map[string]any{"globs": []any{strings.Repeat("*k", 100) + "z", strings.Repeat("*kk", 100) + "z"}},
	})
	defer func() { _ = p.Close(t.Context()) }()
	chain, err := NewChain(Outgoing, Guard{}, p)
	require.NoError(t, err)
	doc, env := document.New(), &Env{RemapIP: identityIP, Measure: true, Domain: "x"}
	least := 0.0
	for range 3 {
		doc.Reset(object)
		begun := cpuTime()
		out, err := chain.Run(t.Context(), doc, env)
		took := float64(cpuTime() - begun)
		var fuel *OutOfFuelError
		var limit *LimitError
		if !errors.As(err, &fuel) && !errors.As(err, &limit) {
			t.Fatalf("%v, want it to run into a limit", err)
		}
		if one := took / float64(out.Calls[0].Fuel); least == 0 || one < least {
			least = one
		}
	}
	return least
}

// leastRatio repeats a measurement that is above the limit, because a busy machine may slow down one of the two
// measurements. A call that is really too expensive is above the limit each time. A measurement far above the limit
// is not repeated.
func leastRatio(limit float64, measure func() float64) float64 {
	least := measure()
	for try := 0; least > limit && least < 5*limit && try < 30; try++ {
		least = min(least, measure())
	}
	return least
}

// TestFuelPaysForTheHost checks that a unit of fuel that pays for a host function takes at most ten times as long as a
// unit that pays for a guest's own code, so that a call with the default fuel ends after about half a second.
func TestFuelPaysForTheHost(t *testing.T) {
	const most = 10
	if raced {
		t.Skip("make test runs it without the race detector")
	}
	h, object := newHost(t), worstObject()
	guest := looping(t, "", &texts{at: 40_000})
	covered := map[string]bool{}
	for name, write := range worst() {
		called, _, _ := strings.Cut(name, " ")
		covered[called] = true
		x := &texts{at: 40_000}
		function := looping(t, write(x), x)
		ratio := leastRatio(most, func() float64 { return perUnit(t, h, object, function) / perUnit(t, h, object, guest) })
		t.Logf("%-18s %.1f", name, ratio)
		if ratio > most {
			t.Errorf("a unit of fuel of %s takes %.1f times as long as one of a guest's own code", name, ratio)
		}
	}
	for name := range hostFunctions()[moduleRefract] {
		if !covered[name] {
			t.Errorf("%s has no worst case", name)
		}
	}
}

// TestChainTimeout checks that a chain ends after its timeout, which is the second line of defense after fuel.
func TestChainTimeout(t *testing.T) {
	h, err := New(t.Context(), NewConfig().WithChainTimeout(time.Millisecond))
	require.NoError(t, err)
	defer func() { _ = h.Close(t.Context()) }()
	x := &texts{at: 40_000}
	p := mustLoad(t, h, "slow", looping(t, worst()["kind"](x), x), PluginConfig{Limits: Limits{Fuel: 1 << 60}})
	chain, err := NewChain(Outgoing, Guard{}, p)
	require.NoError(t, err)
	doc := document.New()
	doc.Reset(map[string]any{})
	var limit *LimitError
	if _, err := chain.Run(t.Context(), doc, &Env{}); !errors.As(err, &limit) || limit.Limit != LimitTime {
		t.Errorf("%v, want the time to be up", err)
	}
}

// TestChainTimeoutNamesTheSlowest checks that the error for a timeout names the slowest plugin, even if this plugin
// had already ended.
func TestChainTimeoutNamesTheSlowest(t *testing.T) {
	const timeout = 150 * time.Millisecond
	h, err := New(t.Context(), NewConfig().WithChainTimeout(timeout))
	require.NoError(t, err)
	defer func() { _ = h.Close(t.Context()) }()
	slow := mustLoad(t, h, "slow", assembleGuest("slow", `"*"`, returnZero, step{"remap_ip", []any{"10.0.0.1", 512, 32}}), PluginConfig{})
	quick := mustLoad(t, h, "quick", assembleGuest("quick", `"*"`, returnZero, set("spec.x", "1")), PluginConfig{})
	// This RemapIP blocks to make the first plugin slow. A real RemapIP must not block.
	env := &Env{RemapIP: func(string) (string, bool) { time.Sleep(2 * timeout); return "", false }}
	for _, list := range [][]*Plugin{{slow, quick}, {quick, slow, quick}} {
		chain, err := NewChain(Outgoing, Guard{}, list...)
		require.NoError(t, err)
		doc := document.New()
		doc.Reset(map[string]any{})
		var limit *LimitError
		_, err = chain.Run(t.Context(), doc, env)
		require.ErrorAs(t, err, &limit)
		if limit.Limit != LimitTime || limit.Plugin != "slow" || doc.Edited() {
			t.Errorf("%v, want the time to be up in slow", err)
		}
	}
}
