// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/test/support/wattest"
)

// This is the hostile suite. Each file in testdata/hostile is a bad guest in the text format. Its first lines
// describe the attack and the expected error. The guests in load/ are whole modules that must not load. The guests in
// run/ can be loaded but behave badly when they run. Each of these guests is either a whole module, or a function
// $bad, from which the file prelude.wat and the wrapper below make a plugin. A wrapped guest behaves well for objects
// of the kind "Good".

// guest is one file of the suite.
type guest struct {
	name   string
	text   string
	errors []string // allowed types of the error; empty: any type
	stages []string // allowed stages of a LoadError
	says   []string // the message must contain one of these texts
	ok     bool     // the call must not fail
	calls  int      // number of calls, of which the last one must fail
	logged string   // text that the log must contain
	kind   string
	writes string
}

func readGuests(t testing.TB, dir string) (guests []guest) {
	t.Helper()
	files, err := filepath.Glob("testdata/hostile/" + dir + "/*.wat")
	if err != nil || len(files) == 0 {
		t.Fatalf("no guests in %s: %v", dir, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		guests = append(guests, parseGuest(t, strings.TrimSuffix(filepath.Base(f), ".wat"), string(text)))
	}
	return guests
}

func parseGuest(t testing.TB, name, text string) guest {
	g := guest{name: name, text: text, calls: 1, kind: "Service", writes: "*"}
	for _, line := range strings.Split(text, "\n") {
		key, value, _ := strings.Cut(strings.TrimPrefix(line, ";; "), ": ")
		switch key {
		case "want":
			g.want(value)
		case "calls":
			if _, err := fmt.Sscan(value, &g.calls); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		case "logged":
			g.logged = value
		case "kind":
			g.kind = value
		case "writes":
			g.writes = value
		}
	}
	if g.says == nil && !g.ok {
		t.Fatalf("%s does not say what it wants", name)
	}
	return g
}

// want parses the expectations, in the format "stage/stage Error Error: words|words".
func (g *guest) want(text string) {
	if g.ok = text == "ok"; g.ok {
		return
	}
	types, says, _ := strings.Cut(text, ": ")
	g.says = strings.Split(says, "|")
	var stage []string
	for _, word := range strings.Fields(types) {
		if strings.HasSuffix(word, "Error") {
			g.errors = append(g.errors, word)
		} else {
			stage = append(stage, word)
		}
	}
	g.stages = strings.Split(strings.Join(stage, " "), "/")
}

const good = `(func (export "outgoing") (result i32)
  (if (call $string_eq (i32.const 1) (i32.const 40000) (i32.const 4) (i32.const 40008) (i32.const 4))
    (then (return (i32.const 0))))
  (call $bad)
  (i32.const 0))
(data (i32.const 40000) "kind")
(data (i32.const 40008) "Good")`

// wrapped reports whether the file has only the function $bad.
func (g *guest) wrapped() bool { return !strings.Contains(g.text, "(module") }

func (g *guest) assemble(t testing.TB) []byte {
	t.Helper()
	source := g.text
	if g.wrapped() {
		prelude, err := os.ReadFile("testdata/hostile/prelude.wat")
		require.NoError(t, err)
		manifest := fmt.Sprintf(`{"name":"bad","version":"1","kinds":["*"],"hooks":["outgoing"],"writes":[%q],"capabilities":["skip"]}`, g.writes)
		source = wattest.Plugin(manifest, string(prelude), g.text+good)
	}
	wasm, err := wattest.Assemble(source)
	require.NoErrorf(t, err, "assembling %s", g.name)
	return wasm
}

// check checks that an error meets the expectations of the guest.
func (g *guest) check(t *testing.T, err error) {
	t.Helper()
	if g.ok {
		if err != nil {
			t.Errorf("got %v, want no error", err)
		}
		return
	}
	if err == nil {
		t.Error("it got through")
		return
	}
	found := len(g.errors) == 0
	for _, name := range g.errors {
		found = found || is[name](err)
	}
	said := false
	for _, s := range g.says {
		said = said || strings.Contains(err.Error(), s)
	}
	if !found || !said {
		t.Errorf("got %T: %.500v\nwant %v with %q", err, err, g.errors, g.says)
	}
	if !strings.Contains(err.Error(), "bad") {
		t.Errorf("the error does not name the plugin: %.500v", err)
	}
}

var is = map[string]func(error) bool{
	"TrapError":         as[*host.TrapError],
	"OutOfFuelError":    as[*host.OutOfFuelError],
	"LimitError":        as[*host.LimitError],
	"AccessError":       as[*host.AccessError],
	"PluginFailedError": as[*host.PluginFailedError],
	"GuardError":        as[*host.GuardError],
}

func as[E error](err error) bool {
	var e E
	return errors.As(err, &e)
}

// arena contains a host and a well-behaved plugin. It counts the log lines of guests.
type arena struct {
	host *host.Host
	good *host.Plugin
	logs *bytes.Buffer
}

const goodPlugin = `(func (export "outgoing") (result i32)
    (call $set_string (i32.const 1) (i32.const 0) (i32.const 20) (i32.const 4) (i32.const 4))
    (i32.const 0))
  (data (i32.const 0) "metadata.labels.good")`

func newArena(t testing.TB) *arena {
	t.Helper()
	a := &arena{logs: &bytes.Buffer{}}
	logger := slog.New(slog.NewTextHandler(a.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	ctx := context.Background()
	var err error
	a.host, err = host.New(ctx, host.NewConfig().WithLogger(logger))
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, a.host.Close(ctx))
	})
	wasm, err := wattest.Assemble(wattest.Plugin(
		`{"name":"good","version":"1","kinds":["*"],"hooks":["outgoing"],"writes":["metadata.labels"]}`,
		`(import "refract" "set_string" (func $set_string (param i32 i32 i32 i32 i32)))`, goodPlugin))
	require.NoError(t, err)
	a.good, err = a.host.Load(ctx, "good", wasm, host.PluginConfig{})
	require.NoError(t, err)
	return a
}

// object returns a new object for each call, so that changes are detected.
func object(kind string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": kind,
		"metadata": map[string]any{
			"name": "web", "namespace": "shop",
			"labels": map[string]any{
				"app": "web", "offloading.liqo.io/origin": "us", "long": strings.Repeat("a", 63),
			},
		},
		"spec": map[string]any{
			"ports":    []any{map[string]any{"name": "http", "port": int64(80)}},
			"selector": map[string]any{"app": "web"},
		},
	}
}

var hostileContext = map[string]any{"offloadingPatch": map[string]any{"tolerations": []any{}}, "nodeName": "far"}

// run runs one object through a chain of plugins, and checks that the object is unchanged after an error.
func (a *arena) run(t *testing.T, kind, guard string, env *host.Env, plugins ...*host.Plugin) (*host.Outcome, error) {
	t.Helper()
	chain, err := host.NewChain(host.Outgoing, host.DefaultGuard(guard), plugins...)
	require.NoError(t, err)
	base, doc := object(kind), document.New()
	doc.Reset(base)
	start := time.Now()
	out, err := chain.Run(context.Background(), doc, env)
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("the call took %v", took)
	}
	if !reflect.DeepEqual(base, object(kind)) {
		t.Error("the object in the cache was changed")
	}
	if err != nil && (doc.Edited() || !reflect.DeepEqual(doc.Value(), base)) {
		t.Errorf("edits survived the error: %v", doc.Value())
	}
	return out, err
}

// maxLogged is the maximum size of the log with the default output limit of 2 MiB. It is larger than this limit,
// because log lines also have attributes.
const maxLogged = 16 << 20

func (a *arena) env() *host.Env {
	return &host.Env{Context: hostileContext, Domain: "shop", RemapIP: func(ip string) (string, bool) { return ip, true }}
}

// survives checks that the host still works after a bad guest.
func (a *arena) survives(t *testing.T) {
	t.Helper()
	if _, err := a.run(t, "Service", "Service", a.env(), a.good); err != nil {
		t.Errorf("a good plugin, afterwards: %v", err)
	}
	if a.logs.Len() > maxLogged {
		t.Errorf("%d bytes of logs", a.logs.Len())
	}
	a.logs.Reset()
}

func TestHostileModulesDoNotLoad(t *testing.T) {
	a := newArena(t)
	for _, g := range append(readGuests(t, "load"), generatedGuests()...) {
		t.Run(g.name, func(t *testing.T) {
			_, err := a.host.Load(context.Background(), "bad", g.assemble(t), host.PluginConfig{})
			g.check(t, err)
			g.checkStage(t, err)
			a.survives(t)
		})
	}
}

func (g *guest) checkStage(t *testing.T, err error) {
	t.Helper()
	var load *host.LoadError
	if !errors.As(err, &load) {
		t.Errorf("got %T, want a LoadError", err)
		return
	}
	for _, s := range g.stages {
		if string(load.Stage) == s {
			return
		}
	}
	t.Errorf("refused at %q, want %q: %.300v", load.Stage, g.stages, err)
}

// generatedGuests returns guests that are too long for files.
func generatedGuests() (guests []guest) {
	add := func(name, says, text string) {
		guests = append(guests, guest{name: name, stages: []string{"format"}, says: []string{says}, text: text})
	}
	add("many-locals", "locals", "(module (func (local "+strings.Repeat("i64 ", 50_000)+")))")
	add("many-functions", "functions", "(module "+strings.Repeat("(func)", 100_001)+")")
	add("deep-blocks", "nesting", "(module (func "+strings.Repeat("block ", 20_000)+strings.Repeat("end ", 20_000)+"))")
	// This module must be rejected: without limits, the compiler would need a minute for these 50 KB.
	loops := strings.Repeat("(loop (local.set 3 (i64.add (local.get 9) (i64.const 1))) (br_if 0 (i64.eqz (local.get 7))))", 3000)
	add("compiler-bomb", "compiling", "(module (func (local "+strings.Repeat("i64 ", 500)+") "+loops+"))")
	return guests
}

func TestHostileModulesAreStopped(t *testing.T) {
	a := newArena(t)
	for _, g := range readGuests(t, "run") {
		t.Run(g.name, func(t *testing.T) {
			// The fuel is a twentieth of the default, because the race detector slows down the test.
			limits := host.Limits{Fuel: 10_000_000}
			p, err := a.host.Load(context.Background(), "bad", g.assemble(t), host.PluginConfig{Limits: limits, Kinds: []string{"*"}, Writes: []string{"*"}})
			require.NoError(t, err)
			defer func() { _ = p.Close(context.Background()) }()
			// The second round uses a fresh instance, which must have the same result.
			for round := range 2 {
				for range g.calls - 1 {
					_, err = a.run(t, "Bad", g.kind, a.env(), p)
					require.NoError(t, err, "an earlier call")
				}
				// The guest is also run after a good plugin. The edits of the good plugin must be dropped, too.
				env := a.env()
				out, err := a.run(t, "Bad", g.kind, env, a.good, p)
				g.check(t, err)
				// The log is checked only in the first round, because leaks are not logged every time.
				if round == 0 && !strings.Contains(a.logs.String(), g.logged) {
					t.Errorf("the log does not have %q: %s", g.logged, a.logs.String())
				}
				// Each of the two plugins may add 16 warnings, and one more with the number of further warnings.
				if len(out.Warnings) > 34 {
					t.Errorf("%d warnings", len(out.Warnings))
				}
				a.survives(t)
				if !g.wrapped() {
					continue
				}
				_, err = a.run(t, "Good", g.kind, a.env(), a.good, p, a.good)
				assert.NoError(t, err, "the plugin, when it behaves")
			}
		})
	}
}
