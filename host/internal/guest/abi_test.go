// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package guest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/tetratelabs/wazero/sys"
	"golang.org/x/time/rate"

	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/host/fuel"
	"github.com/refract-project/refract/host/internal/compiler"
	"github.com/refract-project/refract/test/support/wattest"
)

// driver calls the functions of the ABI as a guest does. Text arguments are written to the memory of a real instance.
type driver struct {
	t   testing.TB
	i   *Instance
	doc *document.Document
	env *Env
	at  uint32 // address of the next text
	im  Imports
}

const (
	bufferAt       = 32768
	bufferCapacity = 16384
)

func newDriver(t testing.TB, object map[string]any, config map[string]any, limits Limits) *driver {
	t.Helper()
	d := &driver{t: t, i: newInstance(t, config, limits), doc: document.New(), env: &Env{}, im: NewImports()}
	d.doc.Reset(object)
	d.call()
	return d
}

// newInstance returns an instance of a module whose hooks do nothing.
func newInstance(t testing.TB, config map[string]any, limits Limits) *Instance {
	t.Helper()
	wasm, err := wattest.Assemble(`(module (memory (export "memory") 1) (func (export "outgoing") (result i32) (i32.const 0)))`)
	require.NoError(t, err)
	limits = limits.WithDefaults(DefaultLimits())
	wasm, err = fuel.Instrument(wasm, fuel.Options{Start: limits.Fuel, CallDepth: uint32(limits.CallDepth), MemoryPages: MaxPages})
	require.NoError(t, err)
	ctx := context.Background()
	c, err := compiler.New(ctx, "", slog.Default(), NewImports().Instantiate)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(ctx) })
	m := NewModule("driver", config, limits, slog.Default())
	m.MaySkip = true
	m.Compiled, m.Runtime, err = c.Compile(ctx, wasm)
	require.NoError(t, err)
	i, err := m.NewInstance(ctx)
	require.NoError(t, err)
	return i
}

// call begins a new call of a hook, which makes earlier handles invalid.
func (d *driver) call() {
	m := d.i.module
	d.doc.Mount(document.ContextRoot, map[string]any{"hook": "outgoing", "localClusterID": "rome", "remoteClusterID": "milan", "nodeName": "milan"})
	d.doc.Begin(m.Config, m.Limits.Handles, m.Limits.OutputBytes)
	d.i.beginCall("outgoing", m.Limits.Fuel)
	d.env.Clock.StartRun(time.Minute)
	d.i.doc, d.i.env, d.i.floor = d.doc, d.env, d.doc.Nodes()
	d.i.generation += generationStep
}

// do calls a function. A string argument becomes a pointer and a length. The argument buffer{} becomes a pointer and
// a capacity.
func (d *driver) do(module, name string, args ...any) (result uint64, err error) {
	d.at = 0
	f, ok := d.im[module][name]
	if !ok {
		d.t.Fatalf("no function %s.%s", module, name)
	}
	var stack []uint64
	for _, a := range args {
		stack = append(stack, d.arg(a)...)
	}
	if len(stack) != len(f.params) {
		d.t.Fatalf("%s takes %d values, not %d", name, len(f.params), len(stack))
	}
	return d.raw(f, stack)
}

func (d *driver) raw(f hostFunction, stack []uint64) (result uint64, err error) {
	defer func() {
		if r := recover(); r != nil {
			var ok bool
			if err, ok = r.(error); !ok || isRuntimeError(err) {
				panic(r)
			}
			err = d.i.classifyError(err)
		}
	}()
	stack = append(stack, 0)
	f.call(d.i, stack)
	return stack[0], nil
}

func isRuntimeError(err error) bool {
	var e interface{ RuntimeError() }
	return errors.As(err, &e)
}

type buffer struct{}

func (d *driver) arg(a any) []uint64 {
	switch a := a.(type) {
	case string:
		at := d.at
		copy(d.i.memory.bytes[at:], a)
		d.at += uint32(len(a))
		return []uint64{uint64(at), uint64(len(a))}
	case buffer:
		return []uint64{bufferAt, bufferCapacity}
	case float64:
		return []uint64{math.Float64bits(a)}
	case int:
		return []uint64{uint64(int64(a))}
	case uint64:
		return []uint64{a}
	}
	panic(fmt.Sprintf("%T", a))
}

func (d *driver) must(name string, args ...any) uint64 {
	d.t.Helper()
	got, err := d.do(moduleRefract, name, args...)
	require.NoErrorf(d.t, err, "%s%v", name, args)
	return got
}

// output returns the bytes that the last function has written to the buffer.
func (d *driver) output(n uint64) string { return string(d.i.memory.bytes[bufferAt : bufferAt+n]) }

func TestABIReads(t *testing.T) {
	d := newDriver(t, map[string]any{
		"a": map[string]any{"s": "text", "n": int64(7), "f": 1.5, "w": 2.0, "b": true, "null": nil, "x.y/z": "dotted"},
		"l": []any{"zero", map[string]any{"k": "v"}},
	}, map[string]any{"level": int64(3)}, Limits{})
	for _, c := range []struct {
		name string
		args []any
		want uint64
	}{
		{"kind", []any{1, "a"}, uint64(document.Map)},
		{"kind", []any{1, "a.null"}, uint64(document.Null)},
		{"kind", []any{1, "a.none.deeper"}, uint64(document.Absent)},
		{"kind", []any{0, "a"}, uint64(document.Absent)},
		{"kind", []any{2, "nodeName"}, uint64(document.String)},
		{"len", []any{1, "a.s"}, 4},
		{"len", []any{1, "l"}, 2},
		{"len", []any{1, "a.n"}, 0},
		{"string", []any{1, "a.s", buffer{}}, 4},
		{"string", []any{1, "a[x.y/z]", buffer{}}, 6},
		{"string", []any{1, "l[1].k", buffer{}}, 1},
		{"string", []any{1, "l.0", buffer{}}, 4},
		{"string", []any{1, "a.null", buffer{}}, absent},
		{"string", []any{0, "", buffer{}}, absent},
		{"string_eq", []any{1, "a.s", "text"}, 1},
		{"string_eq", []any{1, "a.n", "7"}, 0},
		{"int", []any{1, "a.n", 1}, 7},
		{"int", []any{1, "a.w", 1}, 2},
		{"int", []any{1, "a.none", 42}, 42},
		{"int", []any{3, "level", 0}, 3},
		{"float", []any{1, "a.n", 0.0}, math.Float64bits(7)},
		{"float", []any{1, "a.none", 2.5}, math.Float64bits(2.5)},
		{"bool", []any{1, "a.b", 0}, 1},
		{"bool", []any{1, "a.none", 1}, 1},
		{"json", []any{1, "l", buffer{}}, uint64(len(`["zero",{"k":"v"}]`))},
		{"json", []any{1, "none", buffer{}}, 0},
		{"keys", []any{1, "l[1]", buffer{}}, 5},
		{"keys", []any{1, "none", buffer{}}, 0},
		{"get", []any{1, "none"}, 0},
		{"field", []any{0, "a"}, 0},
		{"elem", []any{0, 3}, 0},
	} {
		if got := d.must(c.name, c.args...); got != c.want {
			t.Errorf("%s%v = %d, want %d", c.name, c.args, got, c.want)
		}
	}
	if n := d.must("json", 1, "l", buffer{}); d.output(n) != `["zero",{"k":"v"}]` {
		t.Errorf("json wrote %q", d.output(n))
	}
	if d.must("keys", 1, "l[1]", buffer{}); d.output(5) != "\x01\x00\x00\x00k" {
		t.Errorf("keys wrote %q", d.output(5))
	}
}

func TestABIHandles(t *testing.T) {
	d := newDriver(t, map[string]any{"l": []any{map[string]any{"k": "v"}}}, nil, Limits{})
	l := d.must("get", 1, "l")
	e := d.must("elem", l, 0)
	if f := d.must("field", e, "k"); d.must("string_eq", f, "", "v") != 1 {
		t.Error("the field of the element is not v")
	}
	if got := d.must("elem", l, 1); got != 0 {
		t.Errorf("past the end: handle %d", got)
	}
	made := d.must("ensure_map", 1, "spec.deep")
	d.must("set_int", made, "n", 5)
	d.must("copy", 1, "again", l)
	d.must("remove_elem", l, 0)
	want := map[string]any{"l": []any{}, "again": []any{map[string]any{"k": "v"}},
		"spec": map[string]any{"deep": map[string]any{"n": int64(5)}}}
	if got := d.doc.Value(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestABIWrites(t *testing.T) {
	d := newDriver(t, map[string]any{"m": map[string]any{"vendor/a": "1", "keep": "2", "vendor/b": "3"}},
		map[string]any{"globs": []any{"vendor/b*"}}, Limits{})
	d.must("set_string", 1, "s", "x")
	d.must("set_float", 1, "f", 0.5)
	d.must("set_bool", 1, "b", 1)
	d.must("set_null", 1, "n")
	d.must("set_list", 1, "l")
	d.must("set_string", 1, "l.-", "first")
	d.must("set_json", 1, "j", `{"a":[1,2.5]}`)
	if n := d.must("remove_keys", 1, "m", 3, "globs"); n != 1 {
		t.Errorf("remove_keys removed %d", n)
	}
	if n := d.must("remove_keys", 1, "none\nm", 3, "globs\nglobs"); n != 0 {
		t.Errorf("remove_keys removed %d", n)
	}
	if n := d.must("remove_keys_glob", 1, "m", "nothing\nvendor/?"); n != 1 {
		t.Errorf("remove_keys_glob removed %d", n)
	}
	d.must("set_map", 1, "gone")
	if n := d.must("remove", 1, "gone\nnone.*.at\n"+"f"); n != 2 {
		t.Errorf("remove removed %d", n)
	}
	want := map[string]any{"m": map[string]any{"keep": "2"}, "s": "x", "b": true, "n": nil, "l": []any{"first"},
		"j": map[string]any{"a": []any{int64(1), 2.5}}}
	if got := d.doc.Value(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestABICapabilities(t *testing.T) {
	d := newDriver(t, map[string]any{}, nil, Limits{})
	var logged strings.Builder
	d.env.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	d.env.RemapIP = func(ip string) (string, bool) { return "10.80.0.1", ip == "10.0.0.1" }
	if n := d.must("remap_ip", "10.0.0.1", buffer{}); d.output(n) != "10.80.0.1" {
		t.Errorf("remapped to %q", d.output(n))
	}
	if n := d.must("remap_ip", "10.0.0.2", buffer{}); n != absent {
		t.Errorf("without a mapping: %d", n)
	}
	d.must("log", 1, "hello")
	d.must("warn", "careful")
	d.must("skip", "not wanted")
	if !strings.Contains(logged.String(), "hello") || !strings.Contains(logged.String(), "plugin=driver") {
		t.Errorf("logged %q", logged.String())
	}
	if w := d.i.Warnings(); len(w) != 1 || w[0] != "careful" {
		t.Errorf("warnings %v", w)
	}
	if !d.i.skipped || d.i.reason != "not wanted" {
		t.Errorf("skipped %t: %q", d.i.skipped, d.i.reason)
	}
}

func TestABIMisuse(t *testing.T) {
	object := func() map[string]any {
		return map[string]any{"s": "text", "m": map[string]any{}, "l": []any{int64(1)}}
	}
	d := newDriver(t, object(), map[string]any{"secret": map[string]any{}}, Limits{})
	stale := d.must("get", 1, "m")
	foreign := d.must("get", 3, "secret")
	d.call()
	current := d.must("get", 1, "l")
	for _, c := range []struct {
		name string
		args []any
		says string
	}{
		{"kind", []any{stale, ""}, "earlier call"},
		{"kind", []any{current + 1000, ""}, "no such handle"},
		{"kind", []any{4, ""}, "earlier call"},
		{"kind", []any{uint64(0xFFFFFFFF), ""}, "handle"},
		{"kind", []any{d.i.generation | 1, ""}, "no such handle"},
		{"kind", []any{d.i.generation | foreign&indexMask, ""}, "no such handle"},
		{"kind", []any{1, 65530, 100}, "outside its memory"},
		{"kind", []any{1, uint64(0xFFFFFFFF), uint64(0xFFFFFFFF)}, "outside its memory"},
		{"kind", []any{1, "a..b"}, "empty segment"},
		{"kind", []any{1, strings.Repeat("k", 1025)}, "longer than"},
		{"kind", []any{1, "s.below"}, "is string, not a map or list"},
		{"kind", []any{1, "l.x"}, "needs a number"},
		{"get", []any{1, "m.*.x"}, "wildcard"},
		{"string", []any{1, "l", buffer{}}, "not string"},
		{"string", []any{1, "s", 65530, 100}, ""},
		{"string", []any{1, "s", uint64(0xFFFFFFF0), 100}, "outside its memory"},
		{"int", []any{1, "s", 0}, "not int"},
		{"bool", []any{1, "s", 0}, "not bool"},
		{"float", []any{1, "s", 0.0}, "not a number"},
		{"keys", []any{1, "s", buffer{}}, "not map"},
		{"field", []any{current, "k"}, "is list, not a map"},
		{"elem", []any{1, 0}, "is map, not a list"},
		{"set_string", []any{2, "nodeName", "x"}, "read-only"},
		{"set_string", []any{3, "x", "x"}, "read-only"},
		{"set_string", []any{0, "x", "x"}, "nothing to write to"},
		{"set_string", []any{1, "", "x"}, "empty"},
		{"set_string", []any{1, "x", "\xff"}, "UTF-8"},
		{"set_string", []any{1, "\xff", "x"}, "UTF-8"},
		{"set_int", []any{1, "l[5]", 1}, "past the end"},
		{"set_int", []any{1, "s.x", 1}, "is string"},
		{"set_float", []any{1, "x", math.NaN()}, "NaN"},
		{"set_json", []any{1, "x", "{nope"}, "decoding the JSON"},
		{"ensure_map", []any{1, "s"}, "not a map"},
		{"copy", []any{1, "x", 0}, "nothing to copy"},
		{"remove", []any{1, ""}, "empty"},
		{"remove", []any{2, "nodeName"}, "read-only"},
		{"remove_elem", []any{current, 9}, "past the end"},
		{"remove_keys", []any{1, "l", 0, ""}, "not a map"},
		{"remove_keys", []any{1, "m", 1, ""}, "a list of globs"},
		{"remove_keys", []any{1, "m\nm", 3, "globs"}, "as many"},
		{"remove_keys", []any{1, "m", 3, "globs\nglobs"}, "as many"},
		{"log", []any{9, "x"}, "levels"},
		{"remap_ip", []any{strings.Repeat("1", 65), buffer{}}, "64 bytes"},
	} {
		_, err := d.do(moduleRefract, c.name, c.args...)
		if c.says == "" {
			assert.NoErrorf(t, err, "%s%v", c.name, c.args)
			continue
		}
		var access *AccessError
		if !errors.As(err, &access) || access.Function != c.name || !strings.Contains(access.Problem, c.says) {
			t.Errorf("%s%v: %v, want an AccessError with %q", c.name, c.args, err, c.says)
		}
	}
	if got := d.doc.Value(); !reflect.DeepEqual(got, object()) {
		t.Errorf("misuse changed the object to %v", got)
	}
}

func TestABILimits(t *testing.T) {
	d := newDriver(t, map[string]any{}, nil, Limits{OutputBytes: 1000, Handles: 50, Fuel: 100_000})
	fails := func(limit Limit, f func() error) {
		t.Helper()
		d.doc.Restore()
		d.call()
		var e *LimitError
		err := error(nil)
		for n := 0; n < 2000 && err == nil; n++ {
			err = f()
		}
		if !errors.As(err, &e) || e.Limit != limit {
			t.Errorf("%v, want the limit of %s", err, limit)
		}
	}
	n := 0
	next := func() string { n++; return fmt.Sprint("k", n) }
	fails(LimitHandles, func() error { _, err := d.do(moduleRefract, "set_int", 1, next(), 1); return err })
	fails(LimitOutput, func() error {
		_, err := d.do(moduleRefract, "set_string", 1, "s", strings.Repeat("x", 90)+next())
		return err
	})
	fails(LimitOutput, func() error { _, err := d.do(moduleRefract, "warn", "warning"); return err })
	fails(LimitOutput, func() error {
		_, err := d.do(moduleRefract, "set_json", 1, "j", `"`+strings.Repeat("x", 1000)+`"`)
		return err
	})
	fails(LimitOutput, func() error {
		if _, err := d.do(moduleRefract, "set_string", 1, "a", "seed"); err != nil {
			return err
		}
		_, err := d.do(moduleRefract, "copy", 1, next(), 1)
		return err
	})
}

// TestABIWorkCostsFuel checks that calls whose work grows with their arguments run out of fuel before much work is
// done.
func TestABIWorkCostsFuel(t *testing.T) {
	d := newDriver(t, map[string]any{"m": map[string]any{"a": "1"}}, nil, Limits{Fuel: 100_000})
	for name, do := range map[string]func() (uint64, error){
		"random_get": func() (uint64, error) { return d.do(moduleWASI, "random_get", 0, 60000) },
		"remove": func() (uint64, error) {
			return d.do(moduleRefract, "remove", 1, strings.Repeat("x\n", 10_000)+"x")
		},
		"remove of nothing": func() (uint64, error) {
			return d.do(moduleRefract, "remove", 0, strings.Repeat("x\n", 10_000)+"x")
		},
		"remove_keys": func() (uint64, error) {
			return d.do(moduleRefract, "remove_keys", 1, strings.Repeat("m\n", 10_000)+"m", 0, strings.Repeat("\n", 10_000))
		},
		"remove_keys_glob": func() (uint64, error) {
			return d.do(moduleRefract, "remove_keys_glob", 1, "m", strings.Repeat("\n", 20_000))
		},
		"field": func() (uint64, error) { return d.do(moduleRefract, "field", 1, strings.Repeat("x", 20_000)) },
	} {
		d.doc.Restore()
		d.call()
		var fuel *OutOfFuelError
		err := error(nil)
		for n := 0; n < 100 && err == nil; n++ {
			_, err = do()
		}
		if !errors.As(err, &fuel) {
			t.Errorf("%s: %v, want out of fuel", name, err)
		}
	}
}

func TestWASI(t *testing.T) {
	d := newDriver(t, map[string]any{}, nil, Limits{})
	read := func(name string, args ...any) string {
		t.Helper()
		if errno, err := d.do(moduleWASI, name, args...); errno != 0 || err != nil {
			t.Fatalf("%s: errno %d, %v", name, errno, err)
		}
		return d.output(8)
	}
	if first, second := read("random_get", bufferAt, 8), read("random_get", bufferAt, 8); first == second {
		t.Error("randomness repeats")
	}
	if a, b := read("clock_time_get", 0, 1, bufferAt), read("clock_time_get", 1, 1, bufferAt); a != b {
		t.Error("the clock moves")
	}
	if read("args_sizes_get", bufferAt, bufferAt+4) != strings.Repeat("\x00", 8) {
		t.Error("there are arguments")
	}
	var logged strings.Builder
	d.env.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	copy(d.i.memory.bytes, "panic: oh\n")
	binary.LittleEndian.PutUint32(d.i.memory.bytes[100:], 0)
	binary.LittleEndian.PutUint32(d.i.memory.bytes[104:], 10)
	read("fd_write", 2, 100, 1, 200)
	if !strings.Contains(logged.String(), "panic: oh") {
		t.Errorf("logged %q", logged.String())
	}
	if errno, _ := d.do(moduleWASI, "path_open", 3, 0, 0, 0, 0, 0, 0, 0, 0); errno != wasiNoSys {
		t.Errorf("path_open: errno %d", errno)
	}
	if _, err := d.do(moduleWASI, "fd_write", 1, 100, uint64(0xFFFFFFFF), 0); err != nil {
		var access *AccessError
		if !errors.As(err, &access) {
			t.Errorf("fd_write: %v", err)
		}
	}
	defer func() {
		if exit, ok := recover().(*sys.ExitError); !ok || exit.ExitCode() != 3 {
			t.Error("proc_exit does not exit")
		}
	}()
	d.im[moduleWASI]["proc_exit"].call(d.i, []uint64{3})
}

// TestLogsAreLimitedAcrossCalls checks that the lines of a plugin that logs in each call are logged only up to the
// limit for all calls together.
func TestLogsAreLimitedAcrossCalls(t *testing.T) {
	d := newDriver(t, map[string]any{}, nil, Limits{})
	var lines strings.Builder
	d.env.Logger = slog.New(slog.NewTextHandler(&lines, nil))
	for range 5 * logBurst {
		d.call()
		d.must("log", 1, "hello")
	}
	if n := strings.Count(lines.String(), "hello"); n < logBurst || n > 2*logBurst {
		t.Errorf("%d lines", n)
	}
	d.i.module.lines.SetBurst(1 << 20)
	d.i.module.lines.SetLimit(rate.Inf)
	d.must("log", 1, "hello")
	if !strings.Contains(lines.String(), "linesDroppedBefore=") {
		t.Error("nothing tells of the lines that are missing")
	}
}

// TestImplementedWASI lists the functions of WASI that do something. Each of them needs a case in the test
// TestEveryValueThatAGuestReadsIsTheSameInEachDomain of package host.
func TestImplementedWASI(t *testing.T) {
	assert.ElementsMatch(t, []string{
		"args_get", "environ_get", "args_sizes_get", "environ_sizes_get", "sched_yield", "clock_res_get", "clock_time_get", "random_get", "fd_write",
		"poll_oneoff", "fd_fdstat_get",
	}, slices.Collect(maps.Keys(wasiCalls())))
}
