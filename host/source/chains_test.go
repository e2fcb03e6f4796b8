// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/host/source"
)

func TestDefaultsAlone(t *testing.T) {
	w := newWorld(t)
	w.expect("Service", "service@default")
	w.expect("Ingress.networking.k8s.io", "ingress@default")
	w.expect("ConfigMap", "")
}

func TestOrder(t *testing.T) {
	w := newWorld(t)
	w.apply(map[string][]byte{
		"zebra.wasm": plugin(t, "1", "Service"), "zebra.yaml": []byte("priority: -1"),
		"beta.wasm":  plugin(t, "1", "Service"),
		"alpha.wasm": plugin(t, "1", "*"),
		"late.wasm":  plugin(t, "1", "Service"), "late.yaml": []byte("priority: 100"),
	})
	w.expect("Service", "zebra@1 service@default alpha@1 beta@1 late@1")
	w.expect("Ingress.networking.k8s.io", "ingress@default alpha@1")
	w.expect("ConfigMap", "alpha@1")
}

func TestNarrowedKinds(t *testing.T) {
	w := newWorld(t)
	got := w.apply(map[string][]byte{
		"any.wasm": plugin(t, "1", "*"), "any.yaml": []byte("kinds: [Service, Ingress.networking.k8s.io]"),
		"wrong.wasm": plugin(t, "1", "Service"), "wrong.yaml": []byte("kinds: [ConfigMap]"),
		"other.wasm": plugin(t, "1", "Gateway.example.org"),
	})
	w.expect("Service", "service@default any@1")
	w.expect("Ingress.networking.k8s.io", "ingress@default any@1")
	w.expect("ConfigMap", "")
	if s := got["wrong"]; s.State != source.Failed || !strings.Contains(s.Message, "ConfigMap") {
		t.Errorf("wrong: %+v", s)
	}
	if s := got["other"]; s.State != source.Loaded || s.Running || !strings.Contains(s.Message, "no reflected kind") {
		t.Errorf("other: %+v", s)
	}
}

func TestReplaces(t *testing.T) {
	w := newWorld(t)
	w.apply(map[string][]byte{"mine.wasm": plugin(t, "1", "*"), "mine.yaml": []byte("replaces: service\nkinds: [Service]")})
	w.expect("Service", "mine@1")
	w.expect("Ingress.networking.k8s.io", "ingress@default")
	w.apply(map[string][]byte{"service.wasm": plugin(t, "2", "Service"), "service.yaml": []byte("replaces: service")})
	w.expect("Service", "service@2")
	got := w.apply(map[string][]byte{
		"service.wasm": plugin(t, "3", "Service"),
		"typo.wasm":    plugin(t, "3", "Service"), "typo.yaml": []byte("replaces: servce"),
	})
	// The new version cannot be used, so the old version must continue to run.
	w.expect("Service", "service@2")
	if s := got["service"]; s.State != source.Failed || !s.Running || !strings.Contains(s.Message, "replaces: service") {
		t.Errorf("service: %+v", s)
	}
	if s := got["typo"]; s.State != source.Failed || !strings.Contains(s.Message, "servce") || !strings.Contains(s.Message, "ingress, service") {
		t.Errorf("typo: %+v", s)
	}
	w.apply(nil)
	w.expect("Service", "service@default")
}

// TestBrokenFileLeavesTheOldOneRunning checks that the running version of a plugin continues if its file becomes
// broken.
func TestBrokenFileLeavesTheOldOneRunning(t *testing.T) {
	w := newWorld(t)
	w.apply(map[string][]byte{"a.wasm": plugin(t, "1", "Service")})
	for _, broken := range []map[string][]byte{
		{"a.wasm": plugin(t, "2", "Service")[:50]},
		{"a.wasm": []byte("not wasm")},
		{"a.wasm": plugin(t, "2", "Service"), "a.yaml": []byte("nonsense: true")},
	} {
		generation := w.registry.Generation()
		s := w.apply(broken)["a"]
		w.expect("Service", "service@default a@1")
		if s.State != source.Failed || !s.Running || s.Version != "1" || !strings.Contains(s.Message, "runs on") {
			t.Errorf("status %+v", s)
		}
		if w.registry.Generation() != generation {
			t.Error("chains were swapped for a broken file")
		}
	}
	if s := w.apply(map[string][]byte{"a.wasm": plugin(t, "3", "Service")})["a"]; s.State != source.Loaded || s.Version != "3" {
		t.Errorf("status %+v", s)
	}
	w.expect("Service", "service@default a@3")
}

// TestNoSwapWithoutChange checks that a chain is swapped only if its list of plugins has changed.
func TestNoSwapWithoutChange(t *testing.T) {
	w := newWorld(t)
	files := map[string][]byte{"a.wasm": plugin(t, "1", "Service"), "a.yaml": []byte("priority: 1")}
	w.apply(files)
	before := w.registry.Generation()
	w.apply(files)
	if after := w.registry.Generation(); after != before {
		t.Errorf("%d swaps for the same content", after-before)
	}
	var swapped []string
	cancel := w.registry.Subscribe(func(kind string, hook host.Hook, _ uint64) { swapped = append(swapped, kind+" "+hook.String()) })
	defer cancel()
	files["b.wasm"] = plugin(t, "1", "Ingress.networking.k8s.io")
	w.apply(files)
	if len(swapped) != 2 || !strings.HasPrefix(swapped[0], "Ingress") || !strings.HasPrefix(swapped[1], "Ingress") {
		t.Errorf("swapped %v, want the two chains of Ingress", swapped)
	}
}

// TestMorePluginsThanAChainTakes checks that if there are too many plugins for a chain, the first plugins run and all
// others have an error, that no plugin is compiled again, and that a waiting plugin gets a place that becomes free.
func TestMorePluginsThanAChainTakes(t *testing.T) {
	w, files := newWorld(t), map[string][]byte{"other.wasm": plugin(t, "1", "ConfigMap")}
	name := func(n int) string { return fmt.Sprintf("p%02d", n) }
	for n := range 66 {
		files[name(n)+".wasm"] = plugin(t, "1", "Service")
	}
	check := func(when, version string, waiting ...int) {
		t.Helper()
		statuses := w.apply(files)
		for n := range 66 {
			s, there := statuses[name(n)]
			if waits := slices.Contains(waiting, n); there && (waits != (s.State == source.Failed) || waits == s.Running || waits != strings.Contains(s.Message, "the chain of Service has 64 plugins")) {
				t.Errorf("%s: %s %s running=%t %s", when, s.Name, s.State, s.Running, s.Message)
			}
		}
		chain := slices.Clone(w.registry.Chain("Service", host.Outgoing).Plugins())
		others := slices.DeleteFunc(slices.Clone(chain), func(p *host.Plugin) bool { return p.Name() == "service" })
		if len(chain) != 64 || len(others) != 63 || others[0].Version() != version {
			t.Errorf("%s: %s", when, w.chain("Service", host.Outgoing))
		}
		w.expect("ConfigMap", "other@1")
	}
	check("at start", "1", 63, 64, 65)
	generation, loaded := w.registry.Generation(), w.chains.Plugins()
	check("again", "1", 63, 64, 65)
	if w.registry.Generation() != generation || !slices.Equal(loaded, w.chains.Plugins()) {
		t.Error("plugins were loaded or swapped again without a change")
	}
	files["p00.wasm"] = plugin(t, "2", "Service")
	// This plugin now comes first in the order, but must not run, because a full chain keeps the plugins that it
	// already has.
	files["p65.yaml"] = []byte("priority: -1")
	check("with a new version", "2", 63, 64, 65)
	delete(files, "p10.wasm")
	check("with a free place", "1", 63, 64)
	if got := w.registry.Chain("Service", host.Outgoing).Plugins()[0].Name(); got != "p65" {
		t.Errorf("%s runs first", got)
	}
}

// TestRemovedPluginIsClosed checks that a chain with a plugin that was removed returns ClosedError, and that the new
// chain works.
func TestRemovedPluginIsClosed(t *testing.T) {
	w := newWorld(t)
	w.apply(map[string][]byte{"a.wasm": plugin(t, "1", "ConfigMap")})
	old := w.registry.Chain("ConfigMap", host.Outgoing)
	w.apply(nil)
	require.NoError(t, w.chains.Close(context.Background()))
	doc := document.New()
	doc.Reset(map[string]any{"kind": "ConfigMap", "metadata": map[string]any{"name": "x"}})
	var closed *host.ClosedError
	if _, err := old.Run(context.Background(), doc, &host.Env{}); !errors.As(err, &closed) {
		t.Errorf("the old chain: %v", err)
	}
	if _, err := w.registry.Run(context.Background(), "ConfigMap", host.Outgoing, doc, &host.Env{}); err != nil {
		t.Errorf("the new chain: %v", err)
	}
}

func TestDefaultThatDoesNotLoad(t *testing.T) {
	h, err := host.New(context.Background(), host.NewConfig())
	require.NoError(t, err)
	defer func() { _ = h.Close(context.Background()) }()
	defaults, err := source.ReadFS(fstest.MapFS{"pod.wasm": {Data: []byte("bad")}})
	require.NoError(t, err)
	_, err = source.NewChains(context.Background(), source.ChainsConfig{
		Host: h, Registry: host.NewRegistry(nil), Kinds: kinds, Defaults: defaults,
	})
	if err == nil || !strings.Contains(err.Error(), "pod") {
		t.Errorf("got %v", err)
	}
}
