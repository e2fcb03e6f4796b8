// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host/document"
)

// The guests of these tests run a list of ABI calls with constant arguments.

// step is one call. An argument of type string is a text, and int, int64 and float64 are values of type i32, i64 and
// f64. If an argument is a step, the handle that this step has returned is passed.
type step struct {
	function string
	args     []any
}

// assembleGuest assembles a module whose outgoing hook runs the steps and then the instructions of end.
func assembleGuest(name, writes string, end []byte, steps ...step) []byte {
	m := newModule()
	im := hostFunctions()[moduleRefract]
	index := map[string]uint64{}
	var declare func(steps []step)
	declare = func(steps []step) {
		for _, s := range steps {
			if _, ok := index[s.function]; !ok {
				f := im[s.function]
				index[s.function] = m.importFunc(moduleRefract, s.function, f.ParamTypes(), f.ResultTypes())
			}
			for _, a := range s.args {
				if nested, ok := a.(step); ok {
					declare([]step{nested})
				}
			}
		}
	}
	declare(steps)
	m.plugin(`{"name":"` + name + `","version":"1","kinds":["*"],"hooks":["outgoing"],"writes":[` + writes + `],"capabilities":["skip"]}`)
	var body []byte
	at := int64(8192)
	var call func(s step)
	call = func(s step) {
		for _, a := range s.args {
			switch a := a.(type) {
			case int:
				body = append(append(body, 0x41), sleb(int64(a))...)
			case int64:
				body = append(append(body, 0x42), sleb(a)...)
			case string:
				m.text(at, a)
				body = append(append(body, 0x41), sleb(at)...)
				body = append(append(body, 0x41), sleb(int64(len(a)))...)
				at += int64(len(a)) + 1
			case float64:
				body = binary.LittleEndian.AppendUint64(append(body, 0x44), math.Float64bits(a))
			case step:
				call(a)
			}
		}
		body = append(append(body, 0x10), uleb(index[s.function])...)
	}
	for _, s := range steps {
		call(s)
		if len(im[s.function].ResultTypes()) > 0 {
			body = append(body, 0x1a) // drop
		}
	}
	m.function("outgoing", nil, []byte{i32}, append(body, end...))
	return m.bytes()
}

var (
	returnZero  = []byte{0x41, 0}
	returnOne   = []byte{0x41, 1}
	unreachable = []byte{0x00}
	loop        = []byte{0x03, 0x40, 0x0c, 0, 0x0b, 0x41, 0}
)

func set(path, value string) step { return step{"set_string", []any{1, path, value}} }

func remove(paths string) step { return step{"remove", []any{1, paths}} }

// run runs plugins in a chain with the default guard for pods, and returns the result and the outcome.
func run(t *testing.T, object map[string]any, list ...*Plugin) (map[string]any, *Outcome, error) {
	t.Helper()
	chain, err := NewChain(Outgoing, DefaultGuard("Pod"), list...)
	require.NoError(t, err)
	doc := document.New()
	doc.Reset(object)
	out, err := chain.Run(context.Background(), doc, &Env{Context: benchContext(), Measure: true})
	if err != nil && doc.Edited() {
		t.Error("edits are left after an error")
	}
	return doc.Value(), out, err
}

func TestChainRunsInOrder(t *testing.T) {
	h := newHost(t)
	first := mustLoad(t, h, "first", assembleGuest("first", `"*"`, returnZero, set("spec.x", "1"), set("spec.y", "1"), step{"warn", []any{"w"}}), PluginConfig{})
	second := mustLoad(t, h, "second", assembleGuest("second", `"spec"`, returnZero, set("spec.x", "2"), remove("spec.type")), PluginConfig{})
	got, out, err := run(t, serviceObject(), first, second)
	require.NoError(t, err)
	spec := got["spec"].(map[string]any)
	if spec["x"] != "2" || spec["y"] != "1" || spec["type"] != nil {
		t.Errorf("spec is %v", spec)
	}
	if len(out.Calls) != 2 || out.Calls[0].Plugin != "first" || out.Calls[0].Fuel <= 0 || out.Calls[1].Duration <= 0 {
		t.Errorf("calls %+v", out.Calls)
	}
	if !reflect.DeepEqual(out.Warnings, []Warning{{"first", "w"}}) {
		t.Errorf("warnings %v", out.Warnings)
	}
}

func TestWarningsAreCapped(t *testing.T) {
	steps := make([]step, 100)
	for i := range steps {
		steps[i] = step{"warn", []any{"w"}}
	}
	h := newHost(t)
	loud := mustLoad(t, h, "loud", assembleGuest("loud", `"*"`, returnZero, steps...), PluginConfig{})
	quiet := mustLoad(t, h, "quiet", assembleGuest("quiet", `"*"`, returnZero, steps[:2]...), PluginConfig{})
	_, out, err := run(t, serviceObject(), loud, quiet)
	require.NoError(t, err)
	want := slices.Repeat([]Warning{{"loud", "w"}}, 16)
	want = append(want, Warning{"loud", "and 84 more warnings"}, Warning{"quiet", "w"}, Warning{"quiet", "w"})
	if !reflect.DeepEqual(out.Warnings, want) {
		t.Errorf("warnings %v", out.Warnings)
	}
}

func TestMeasure(t *testing.T) {
	p := mustLoad(t, newHost(t), "service", defaultModule(t, "Service"), PluginConfig{})
	for _, measure := range []bool{true, false, true} {
		chain, err := NewChain(Outgoing, DefaultGuard("Service"), p, p)
		require.NoError(t, err)
		doc, env := document.New(), &Env{Context: benchContext(), Measure: measure}
		doc.Reset(serviceObject())
		out, err := chain.Run(context.Background(), doc, env)
		require.NoError(t, err)
		for _, c := range out.Calls {
			if got := c.Fuel > 0 && c.Memory >= 1<<16 && c.Duration > 0; got != measure {
				t.Errorf("measure %t: %+v", measure, c)
			}
		}
	}
}

func TestChainFailures(t *testing.T) {
	h := newHost(t)
	good := mustLoad(t, h, "good", assembleGuest("good", `"*"`, returnZero, set("spec.good", "1")), PluginConfig{})
	for name, c := range map[string]struct {
		wasm   []byte
		target any
		says   string
	}{
		"trap":    {assembleGuest("bad", `"*"`, unreachable, set("spec.x", "1")), new(*TrapError), "unreachable"},
		"loop":    {assembleGuest("bad", `"*"`, loop, set("spec.x", "1")), new(*OutOfFuelError), "does it loop"},
		"access":  {assembleGuest("bad", `"*"`, returnZero, set("spec.x", "1"), set("kind.x", "1")), new(*AccessError), "set_string"},
		"failed":  {assembleGuest("bad", `"*"`, returnOne, set("spec.x", "1"), step{"fail", []any{"no quota"}}), new(*PluginFailedError), "no quota"},
		"status":  {assembleGuest("bad", `"*"`, returnOne), new(*PluginFailedError), "no reason"},
		"guard":   {assembleGuest("bad", `"*"`, returnZero, set("metadata.name", "x")), new(*GuardError), "metadata.name"},
		"too big": {assembleGuest("bad", `"*"`, returnZero, set("spec.x", strings.Repeat("x", 3000))), new(*LimitError), "2000 output bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := mustLoad(t, h, "bad", c.wasm, PluginConfig{Limits: Limits{OutputBytes: 2000, Fuel: 1_000_000}})
			object := serviceObject()
			got, _, err := run(t, object, good, bad)
			if err == nil || !errors.As(err, c.target) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), `"bad"`) {
				t.Errorf("%T %v, want %T with %q", err, err, c.target, c.says)
			}
			if !reflect.DeepEqual(got, serviceObject()) || !reflect.DeepEqual(object, serviceObject()) {
				t.Error("the object changed")
			}
			// The next call must fail with an error of the same type, whichever instance it uses.
			if _, _, again := run(t, object, good, bad); again == nil || reflect.TypeOf(again) != reflect.TypeOf(err) {
				t.Errorf("the second call: %v", again)
			}
		})
	}
}

func TestChainSkips(t *testing.T) {
	h := newHost(t)
	skips := mustLoad(t, h, "skips", assembleGuest("skips", `"*"`, returnZero, set("spec.x", "1"), step{"skip", []any{"not here"}}), PluginConfig{})
	after := mustLoad(t, h, "after", assembleGuest("after", `"*"`, unreachable), PluginConfig{})
	got, out, err := run(t, serviceObject(), skips, after)
	if err != nil || !out.Skipped || out.Skipper != "skips" || out.SkipReason != "not here" {
		t.Errorf("%+v, %v", out, err)
	}
	if !reflect.DeepEqual(got, serviceObject()) {
		t.Error("the object changed")
	}
}

func TestIgnoredFailure(t *testing.T) {
	h := newHost(t)
	lax := PluginConfig{IgnoreFailure: true}
	first := mustLoad(t, h, "first", assembleGuest("first", `"*"`, returnZero, set("spec.first", "1")), lax)
	traps := mustLoad(t, h, "traps", assembleGuest("traps", `"*"`, unreachable, set("spec.first", "2"), set("spec.x", "1"), remove("spec.ports.*.nodePort")), lax)
	forges := mustLoad(t, h, "forges", assembleGuest("forges", `"*"`, returnZero, set("spec.x", "1"), set("metadata.uid", "mine")), lax)
	last := mustLoad(t, h, "last", assembleGuest("last", `"*"`, returnZero, set("spec.last", "1")), PluginConfig{})
	got, out, err := run(t, serviceObject(), first, traps, forges, last)
	want := serviceObject()
	want["spec"].(map[string]any)["first"], want["spec"].(map[string]any)["last"] = "1", "1"
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v: %v", err, got)
	}
	if len(out.Warnings) != 2 || out.Calls[1].Err == nil || out.Calls[2].Err == nil || out.Calls[3].Err != nil {
		t.Errorf("%+v", out)
	}
}

func TestChainStopsAtCancelledContext(t *testing.T) {
	p := mustLoad(t, newHost(t), "noop", noop, PluginConfig{})
	chain, _ := NewChain(Outgoing, Guard{}, p)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	doc := document.New()
	doc.Reset(serviceObject())
	if _, err := chain.Run(ctx, doc, &Env{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestFuelIsDeterministic(t *testing.T) {
	var used []int64
	// Two hosts compile the module independently, and both must use the same fuel.
	for range 2 {
		p := mustLoad(t, newHost(t), "service", defaultModule(t, "Service"), PluginConfig{})
		_, out, err := run(t, serviceObject(), p)
		require.NoError(t, err)
		used = append(used, out.Calls[0].Fuel)
	}
	if used[0] != used[1] || used[0] == 0 {
		t.Errorf("fuel %v", used)
	}
}

// TestFuelOfKnownPathsIsTheSame checks that a plugin uses the same fuel on a fresh document as on one that has
// already resolved the plugin's paths, although the second document does less work.
func TestFuelOfKnownPathsIsTheSame(t *testing.T) {
	h, used := newHost(t), document.New()
	for kind, object := range map[string]map[string]any{"Service": serviceObject(), "Pod": podObject()} {
		chain, err := NewChain(Outgoing, DefaultGuard(kind), mustLoad(t, h, kind, defaultModule(t, kind), PluginConfig{}))
		require.NoError(t, err)
		fuel := func(doc *document.Document) int64 {
			doc.Reset(object)
			out, err := chain.Run(context.Background(), doc, &Env{Context: benchContext(), Measure: true})
			require.NoError(t, err)
			return out.Calls[0].Fuel
		}
		want := fuel(document.New())
		for i := range 5 {
			if got := fuel(used); got != want {
				t.Errorf("%s, call %d: fuel %d, with a new document %d", kind, i, got, want)
			}
		}
	}
}

func TestNewChain(t *testing.T) {
	p := mustLoad(t, newHost(t), "out", assembleGuest("out", `"*"`, returnZero), PluginConfig{})
	c, err := NewChain(Incoming, Guard{}, p)
	if err != nil || len(c.Plugins()) != 0 || c.Hook() != Incoming {
		t.Errorf("a plugin without the hook is in the chain: %v, %v", c.Plugins(), err)
	}
	if _, err := NewChain(Outgoing, Guard{Immutable: []string{"a..b"}}); err == nil {
		t.Error("a malformed guard is accepted")
	}
	many := make([]*Plugin, 65)
	for i := range many {
		many[i] = p
	}
	if _, err := NewChain(Outgoing, Guard{}, many...); err == nil {
		t.Error("65 plugins are accepted")
	}
}

// TestSteadyStateAllocatesNothing checks that a chain allocates no memory after its first runs: with the default
// plugin alone, before and after a plugin without effect, and twice in the same chain.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	h := newHost(t)
	empty := mustLoad(t, h, "noop", noop, PluginConfig{})
	for kind, object := range map[string]map[string]any{"Service": serviceObject(), "Pod": podObject()} {
		p := mustLoad(t, h, kind, defaultModule(t, kind), PluginConfig{})
		for name, list := range map[string][]*Plugin{"alone": {p}, "noop": {p, empty}, "noops": {empty, p, empty, empty}, "twice": {p, p, p}} {
			chain, err := NewChain(Outgoing, DefaultGuard(kind), list...)
			require.NoError(t, err)
			doc, env, ctx := document.New(), &Env{Context: benchContext()}, context.Background()
			once := func() {
				doc.Reset(object)
				if _, err := chain.Run(ctx, doc, env); err != nil || doc.Root().View().Equal(document.Of(object)) {
					t.Fatalf("%s, %s: %v", kind, name, err)
				}
			}
			for range 10 {
				once()
			}
			if n := testing.AllocsPerRun(200, once); n != 0 {
				t.Errorf("%s, %s: %v allocations", kind, name, n)
			}
		}
	}
}
