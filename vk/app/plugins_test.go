// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/record"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/internal/folderplugins"
	"github.com/refract-project/refract/test/support/wattest"
	"github.com/refract-project/refract/vk/app/options"
)

// leaking returns a plugin module for Services that leaks, so that the second call fails in every instance.
func leaking(t *testing.T) []byte {
	t.Helper()
	wasm, err := wattest.Assemble(wattest.Plugin(`{"name":"leaky","version":"1.2","kinds":["Service"],"hooks":["outgoing"],"writes":["metadata.labels"]}`, "",
		`(global $calls (mut i32) (i32.const 0))
		(func (export "outgoing") (result i32)
		  (if (global.get $calls) (then (unreachable)))
		  (global.set $calls (i32.const 1)) (i32.const 0))`))
	require.NoError(t, err)
	return wasm
}

// series returns the samples of a collector, keyed by name and labels.
func series(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	require.NoError(t, registry.Register(c))
	families, err := registry.Gather()
	require.NoError(t, err)
	out := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// TestPluginsAreReported checks that an Event and a metric report each plugin that is used, is ignored, is refused or
// leaks memory. It also checks that the process starts even if its cache is unusable.
func TestPluginsAreReported(t *testing.T) {
	dir, cache := t.TempDir(), filepath.Join(t.TempDir(), "cache")
	// The cache folder cannot be created, because a file has the same name. The process must still start.
	require.NoError(t, os.WriteFile(cache, nil, 0o600))
	write := func(files map[string][]byte) {
		for name, content := range files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
		}
	}
	write(map[string][]byte{"leaky.wasm": leaking(t), "odd.wasm": leaking(t), "odd.yaml": []byte("kinds: [Service, Pod]\n"), "README.md": nil})
	events := record.NewFakeRecorder(100)
	k := &kubelet{Options: &options.Options{PluginDir: dir, PluginCacheDir: cache}, report: &reporter{recorder: events}}
	ctx := context.Background()
	p, err := k.loadPlugins(ctx)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.closeModules(ctx)) }()
	changes := 0
	changed := func() { changes++ }
	p.folderChanged.Store(&changed)
	// These files must not exist at the start, because otherwise the reflection of their kinds would wait.
	write(map[string][]byte{"broken.wasm": []byte("not wasm"), "loose.wasm": leaking(t), "loose.YAML": []byte("writes: []\n")})
	require.NoError(t, p.dir.Sync(ctx))
	doc := document.New()
	for range 3 {
		doc.Reset(map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "web"}, "spec": map[string]any{}})
		_, err := p.registry.Run(ctx, "Service", host.Outgoing, doc, &host.Env{Domain: "shop"})
		require.NoError(t, err)
	}

	require.Positive(t, changes)
	require.Equal(t, []folderplugins.Plugin{
		{Name: "broken", State: "Failed"}, {Name: "leaky", State: "Loaded", IsRunning: true, Version: "1.2", Kinds: []string{"Service"},
			Hooks: []string{"outgoing"}},
		{Name: "loose", State: "Failed"}, {Name: "odd", State: "Loaded", IsRunning: true, Version: "1.2", Kinds: []string{"Service"},
			Hooks: []string{"outgoing"}},
	}, p.describeFolder())

	got := series(t, p)
	for name, want := range map[string]float64{
		"refract_plugin_files Loaded": 2, "refract_plugin_files Failed": 2, "refract_plugin_files Ignored": 2, "refract_plugin_files Warning": 1,
		"refract_plugin_leaks_total leaky": 2, "refract_plugin_leaks_total odd": 2, "refract_plugin_leaks_total service": 0,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s is %v, want %v", name, value, want)
		}
	}
	for _, folder := range []string{"compiled", "last-good"} {
		if name := "refract_plugin_cache_failures_total " + filepath.Join(cache, folder); got[name] == 0 {
			t.Errorf("%s is 0: %v", name, got)
		}
	}
	var all []string
	for len(events.Events) > 0 {
		all = append(all, <-events.Events)
	}
	for _, want := range []string{
		"Normal PluginLoaded Plugin leaky 1.2 is in use for [Service]", "Warning PluginWarning Plugin odd: loaded; warning: kinds: Pod", "Warning PluginFailed Plugin broken",
		"Warning PluginFailed Plugin loose", "Warning PluginFileIgnored File README.md", "Warning PluginFileIgnored File loose.YAML", "Warning PluginLeaks Plugin leaky", "Warning PluginLeaks Plugin odd",
	} {
		if !strings.Contains(fmt.Sprintf("%q", all), want) {
			t.Errorf("no Event %q in %q", want, all)
		}
	}
}

// TestHeldKindsOfTheFolderAreReported checks the metrics, the condition and the Event about a plugin in the folder that
// cannot be loaded at the start. They must end when the file of the plugin is replaced.
func TestHeldKindsOfTheFolderAreReported(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "broken.wasm")
	require.NoError(t, os.WriteFile(file, []byte("not wasm"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "broken.yaml"), []byte("kinds: [Service]\n"), 0o600))
	events := record.NewFakeRecorder(100)
	k := &kubelet{Options: &options.Options{PluginDir: dir}, report: &reporter{recorder: events}}
	p, err := k.loadPlugins(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, p.closeModules(context.Background())) }()

	held := "refract_plugin_held Service folder broken" // sorted by the names of the labels, which are kind, origin and plugin
	require.EqualValues(t, 1, series(t, p)[held])
	condition := folderplugins.NewCondition(p.describeFolder())
	require.Equal(t, folderplugins.HeldReason, condition.Reason)
	require.Contains(t, condition.Message, "Plugins that cannot run: broken. Objects of these kinds are neither written nor deleted until they can: Service.")
	require.Contains(t, <-events.Events, "Warning PluginFailed Plugin broken")

	require.NoError(t, os.WriteFile(file, leaking(t), 0o600))
	require.NoError(t, p.dir.Sync(t.Context()))
	got := series(t, p)
	require.NotContains(t, got, held)
	require.Equal(t, folderplugins.LoadedReason, folderplugins.NewCondition(p.describeFolder()).Reason)
	found := false
	for name := range got {
		found = found || strings.HasPrefix(name, "refract_plugin_info ") && strings.Contains(name, " folder broken ")
	}
	require.True(t, found, "%v", got)
}
