// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugintest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/sdk"
)

// Module is a compiled plugin with a host of its own. It is safe for concurrent use.
type Module struct {
	host *host.Host
	name string
	wasm []byte

	mu     sync.Mutex
	loaded map[string]*host.Plugin // keyed by configuration
}

// Open reads a module and creates a host for it. The host is closed at the end of the test.
func Open(t testing.TB, path string) *Module {
	t.Helper()
	wasm, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("reading the module, %v (compile the plugin first, as README.md of the plugin says)", err)
	}
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	h, err := host.New(t.Context(), host.NewConfig().WithLogger(logger))
	if err != nil {
		t.Fatalf("starting a host, %v", err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil { // the context of the test is already done, so a new one is needed
			t.Errorf("closing the host, %v", err)
		}
	})
	name := strings.TrimSuffix(filepath.Base(path), ".wasm")
	return &Module{host: h, name: name, wasm: wasm, loaded: map[string]*host.Plugin{}}
}

// plugin returns the module with a configuration. It loads the module once for each configuration.
func (m *Module) plugin(t testing.TB, config map[string]any) (*host.Plugin, error) {
	key, err := json.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("encoding the configuration, %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.loaded[string(key)]; p != nil {
		return p, nil
	}
	p, err := m.host.Load(t.Context(), m.name, m.wasm, host.PluginConfig{Config: config})
	if err == nil {
		m.loaded[string(key)] = p
	}
	return p, err
}

// Run runs the plugin for a case. If the module cannot be loaded, the test ends.
func (m *Module) Run(t testing.TB, c Case) Outcome {
	t.Helper()
	out, err := m.try(t, c)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// try runs the plugin for a case. If the module cannot be loaded, it returns an error.
func (m *Module) try(t testing.TB, c Case) (Outcome, error) {
	p, err := m.plugin(t, c.Config)
	if err != nil {
		return Outcome{}, err
	}
	chain, err := host.NewChain(c.Hook, guard(c), p)
	if err != nil {
		return Outcome{}, fmt.Errorf("building the chain, %w", err)
	}
	doc := document.New()
	doc.Reset(c.Object)
	env := &host.Env{Context: c.Context, RemapIP: c.remapIP, Measure: true}
	result, err := chain.Run(t.Context(), doc, env)
	if err != nil {
		return Outcome{Err: err}, nil
	}
	out := Outcome{}
	for _, warning := range result.Warnings {
		out.Warnings = append(out.Warnings, warning.Message)
	}
	for _, call := range result.Calls {
		out.Fuel += call.Fuel
		out.Memory = max(out.Memory, call.Memory)
	}
	if result.Skipped {
		out.SkipReason = result.SkipReason
		return out, nil
	}
	out.Object = cloneMap(doc.Value())
	return out, nil
}

// guard returns the host's guard for the kind, without the parts of the guard that change objects. A test thus sees
// only the plugin's changes.
func guard(c Case) host.Guard {
	kind, _ := c.Object["kind"].(string)
	g := host.DefaultGuard(kind)
	g.Unforgeable, g.Off = append(g.Unforgeable, g.Off...), nil
	return g
}

// runNative runs a case in the native build.
func runNative(p *sdk.Plugin, c Case) Outcome {
	result, err := p.RunNative(sdk.Call{
		Hook:    sdk.Hook(c.Hook),
		Object:  c.Object,
		Context: c.Context,
		Config:  c.Config,
		RemapIP: c.remapIP,
	})
	if err != nil {
		return Outcome{Err: err}
	}
	return Outcome{Object: result.Object, SkipReason: result.SkipReason, Warnings: result.Warnings}
}
