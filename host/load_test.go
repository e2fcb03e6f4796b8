// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host/document"
)

// runOnce runs an object through an outgoing chain of one plugin without a guard, and returns the result.
func runOnce(tb testing.TB, p *Plugin, object map[string]any) (map[string]any, error) {
	tb.Helper()
	chain, err := NewChain(Outgoing, Guard{}, p)
	require.NoError(tb, err)
	doc := document.New()
	doc.Reset(object)
	_, err = chain.Run(context.Background(), doc, &Env{Context: benchContext()})
	return doc.Value(), err
}

// startModule returns a module whose start function has the given body.
func startModule(body []byte) *wasmModule {
	m := newModule().plugin(noopManifest)
	m.function("outgoing", nil, []byte{i32}, []byte{0x41, 0})
	m.function("incoming", nil, []byte{i32}, []byte{0x41, 0})
	m.start = int(m.function("", nil, nil, body))
	return m
}

func TestLoad(t *testing.T) {
	h := newHost(t)
	p := mustLoad(t, h, "noop", noop, PluginConfig{})
	if p.Name() != "noop" || p.Version() != "1" || p.Portable() || !strings.HasPrefix(p.Digest(), "sha256:") {
		t.Errorf("%s %s %t %s", p.Name(), p.Version(), p.Portable(), p.Digest())
	}
	m := p.Manifest()
	if !m.Matches("Pod", "", Outgoing) || !m.Matches("Ingress", "networking.k8s.io", Incoming) {
		t.Errorf("%+v does not match any kind", m)
	}
	narrow := Manifest{Kinds: []string{"Ingress.networking.k8s.io", "Pod"}, Hooks: []string{"outgoing"}}
	if narrow.Matches("Ingress", "extensions", Outgoing) || narrow.Matches("Pod", "", Incoming) || !narrow.Matches("Pod", "", Outgoing) {
		t.Error("a manifest matches what it does not list")
	}
}

func TestLoadRefuses(t *testing.T) {
	manifest := func(text string) []byte {
		m := newModule().plugin(text)
		m.function("outgoing", nil, []byte{i32}, []byte{0x41, 0})
		return m.bytes()
	}
	with := func(change func(m *wasmModule)) []byte {
		m := newModule()
		change(m)
		m.plugin(noopManifest)
		return m.bytes()
	}
	for name, c := range map[string]struct {
		wasm  []byte
		pc    PluginConfig
		stage Stage
		says  string
	}{
		"empty":             {nil, PluginConfig{}, StageInstrument, ""},
		"text":              {[]byte("apiVersion: v1"), PluginConfig{}, StageInstrument, ""},
		"too large":         {noop, PluginConfig{Limits: Limits{ModuleBytes: 10}}, StageSize, "10 module bytes"},
		"negative limit":    {noop, PluginConfig{Limits: Limits{Fuel: -1}}, StageConfig, "negative"},
		"bad narrowing":     {noop, PluginConfig{Writes: []string{"a..b"}}, StageConfig, "empty segment"},
		"unknown module":    {with(func(m *wasmModule) { m.importFunc("env", "f", nil, nil) }), PluginConfig{}, StageImports, "env.f"},
		"unknown function":  {with(func(m *wasmModule) { m.importFunc("refract", "steal", nil, nil) }), PluginConfig{}, StageImports, "refract.steal"},
		"wrong import type": {with(func(m *wasmModule) { m.importFunc("refract", "kind", []byte{i64}, []byte{i32}) }), PluginConfig{}, StageImports, "[i64] -> [i32]"},
		"no hook exported":  {newModule().plugin(noopManifest).bytes(), PluginConfig{}, StageManifest, "export the function outgoing"},
		"hook of wrong type": {func() []byte {
			m := newModule().plugin(noopManifest)
			m.function("outgoing", nil, []byte{i64}, []byte{0x42, 0})
			return m.bytes()
		}(), PluginConfig{}, StageManifest, "must be"},
		"no exports":        {newModule().bytes(), PluginConfig{}, StageExports, "exports neither"},
		"a command":         {func() []byte { m := newModule(); m.function("_start", nil, nil, nil); return m.bytes() }(), PluginConfig{}, StageExports, "reactor"},
		"wrong ABI version": {bytes.Replace(noop, []byte{0, 0x41, 1, 0x0b}, []byte{0, 0x41, 2, 0x0b}, 1), PluginConfig{}, StageVersion, "version 2"},
		"manifest no JSON":  {manifest("{"), PluginConfig{}, StageManifest, "JSON"},
		"manifest no name":  {manifest(`{"kinds":["*"],"hooks":["outgoing"]}`), PluginConfig{}, StageManifest, "no name"},
		"manifest bad hook": {manifest(`{"name":"x","kinds":["*"],"hooks":["sideways"]}`), PluginConfig{}, StageManifest, "sideways"},
		"manifest bad path": {manifest(`{"name":"x","kinds":["*"],"hooks":["outgoing"],"writes":["a..b"]}`), PluginConfig{}, StageManifest, "empty segment"},
		"manifest far away": {func() []byte {
			m := newModule()
			m.function("refract_abi_version", nil, []byte{i32}, []byte{0x41, 1})
			m.function("refract_manifest", nil, []byte{i64}, append([]byte{0x42}, sleb(0x7ffffff0<<32|100)...))
			return m.bytes()
		}(), PluginConfig{}, StageManifest, "outside its memory"},
		"memory":      {func() []byte { m := newModule().plugin(noopManifest); m.pages = 300; return m.bytes() }(), PluginConfig{}, StageStart, "256 memory pages"},
		"start loops": {startModule([]byte{0x03, 0x40, 0x0c, 0, 0x0b}).bytes(), PluginConfig{}, StageStart, "units of fuel in start"},
		"start traps": {startModule([]byte{0x00}).bytes(), PluginConfig{}, StageStart, "trapped in start"},
		"configuration": {manifest(`{"name":"x","kinds":["*"],"hooks":["outgoing"],"configSchema":{"type":"object","additionalProperties":false}}`),
			PluginConfig{Config: map[string]any{"typo": true}}, StageConfig, "typo"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newHost(t).Load(context.Background(), "bad", c.wasm, c.pc)
			var e *LoadError
			if !errors.As(err, &e) || e.Stage != c.stage || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v (stage %v), want %s with %q", err, e, c.stage, c.says)
			}
		})
	}
}

func TestStartRuns(t *testing.T) {
	// The start function increases the size of the memory. If the host did not run it, a later access would trap.
	m := startModule([]byte{0x41, 1, 0x40, 0, 0x1a})
	p := mustLoad(t, newHost(t), "start", m.bytes(), PluginConfig{})
	if got := p.hot.Load().MemorySize(); got != 2<<16 {
		t.Errorf("memory of %d bytes after the start function", got)
	}
}

func TestCompilationCache(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		h, err := New(context.Background(), NewConfig().WithCacheDir(dir+"/made"))
		require.NoError(t, err)
		mustLoad(t, h, "service", defaultModule(t, "Service"), PluginConfig{})
		require.NoError(t, h.Close(context.Background()))
	}
	if files, err := os.ReadDir(dir + "/made"); err != nil || len(files) == 0 {
		t.Errorf("nothing cached: %v", err)
	}
}

// TestCacheFolderOfAnyName checks that special characters in the name of the folder are not treated as a pattern.
func TestCacheFolderOfAnyName(t *testing.T) {
	h, err := New(t.Context(), NewConfig().WithCacheDir(filepath.Join(t.TempDir(), "plug[ins*")))
	require.NoError(t, err)
	mustLoad(t, h, "service", defaultModule(t, "Service"), PluginConfig{})
	require.NoError(t, h.Close(t.Context()))
	if n := h.CacheFailures(); n != 0 {
		t.Errorf("the cache failed %d times", n)
	}
}
