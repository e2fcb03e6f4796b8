// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/test/support/wattest"
)

// plugin returns a module for the kinds that sets the label "by" to its version in both hooks.
func plugin(t testing.TB, version string, kinds ...string) []byte {
	t.Helper()
	return withManifest(t, fmt.Sprintf(`{"name":"test","version":%q,"kinds":["%s"],"hooks":["outgoing","incoming"],"writes":["metadata.labels"]}`,
		version, strings.Join(kinds, `","`)), version)
}

// withManifest returns a module with the same code as the modules of plugin, and with the given manifest.
func withManifest(t testing.TB, manifest string, label ...string) []byte {
	t.Helper()
	version := strings.Join(label, "")
	body := fmt.Sprintf(`(call $set_string (i32.const 1) (i32.const 0) (i32.const 18) (i32.const 64) (i32.const %d)) (i32.const 0)`, len(version))
	wasm, err := wattest.Assemble(wattest.Plugin(manifest,
		`(import "refract" "set_string" (func $set_string (param i32 i32 i32 i32 i32)))`,
		fmt.Sprintf(`(data (i32.const 0) "metadata.labels.by") (data (i32.const 64) "%s")
		(func $hook (result i32) %s)
		(export "outgoing" (func $hook)) (export "incoming" (func $hook))`, version, body)))
	require.NoError(t, err)
	return wasm
}

// labelSet runs the outgoing chain of a kind on an object. It returns the metadata of the result, or the error.
func labelSet(w *world, kind string) string {
	w.t.Helper()
	name, _, _ := strings.Cut(kind, ".")
	doc := document.New()
	doc.Reset(map[string]any{"apiVersion": "v1", "kind": name, "metadata": map[string]any{"name": "x"}})
	if _, err := w.registry.Run(context.Background(), kind, host.Outgoing, doc, &host.Env{}); err != nil {
		return err.Error()
	}
	return fmt.Sprint(doc.Value()["metadata"])
}

// world is a host with a registry for three kinds. Each kind except ConfigMap has a default plugin.
type world struct {
	t        testing.TB
	registry *host.Registry
	chains   *source.Chains
	quiet    time.Duration // DirConfig.Quiet of the Dirs
}

var kinds = []string{"Service", "Ingress.networking.k8s.io", "ConfigMap"}

func newWorld(t testing.TB) *world { return newWorldWith(t, "") }

// newWorldWith returns a world that stores last good versions in the given folder.
func newWorldWith(t testing.TB, lastGood string) *world {
	t.Helper()
	return newWorldOf(t, lastGood, fstest.MapFS{
		"service/service.wasm": {Data: plugin(t, "default", "Service")},
		"ingress/ingress.wasm": {Data: plugin(t, "default", "Ingress.networking.k8s.io")},
	})
}

// newWorldOf returns a world with the given default plugins.
func newWorldOf(t testing.TB, lastGood string, defaultPlugins fstest.MapFS) *world {
	t.Helper()
	ctx := context.Background()
	h, err := host.New(ctx, host.NewConfig().WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	w := &world{t: t, registry: host.NewRegistry(nil), quiet: 30 * time.Millisecond}
	defaults, err := source.ReadFS(defaultPlugins)
	require.NoError(t, err)
	w.chains, err = source.NewChains(ctx, source.ChainsConfig{Host: h, Registry: w.registry, Kinds: kinds, Defaults: defaults, LastGoodDir: lastGood})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
		defer cancel()
		assert.NoError(t, w.chains.Close(ctx))
		assert.NoError(t, h.Close(ctx))
	})
	return w
}

// chain returns the names and versions of the plugins in a chain, in order.
func (w *world) chain(kind string, hook host.Hook) string {
	var out []string
	for _, p := range w.registry.Chain(kind, hook).Plugins() {
		out = append(out, p.Name()+"@"+p.Version())
	}
	return strings.Join(out, " ")
}

// expect compares both chains of a kind with want.
func (w *world) expect(kind, want string) {
	w.t.Helper()
	for _, hook := range []host.Hook{host.Outgoing, host.Incoming} {
		if got := w.chain(kind, hook); got != want {
			w.t.Errorf("%s chain of %s: %q, want %q", hook, kind, got, want)
		}
	}
}

// apply applies the modules of a directory with the given files, and returns their statuses.
func (w *world) apply(files map[string][]byte) map[string]source.Status {
	w.t.Helper()
	dir := w.t.TempDir()
	write(w.t, dir, files)
	modules, err := source.ReadDir(dir)
	require.NoError(w.t, err)
	out := map[string]source.Status{}
	for _, s := range w.chains.Apply(context.Background(), modules) {
		out[s.Name] = s
	}
	return out
}

func write(t testing.TB, dir string, files map[string][]byte) {
	t.Helper()
	for name, data := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
}

func names(modules []source.Module) (out []string) {
	for _, m := range modules {
		out = append(out, m.Name)
	}
	slices.Sort(out)
	return out
}

// eventually waits until the function holds returns true. If it does not return true in time, the test fails with the
// text in what.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(3 * time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}
