// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/host/source"
)

// inNamespace selects the objects of a namespace.
type inNamespace string

func (n inNamespace) Selects(env *host.Env) (bool, error) { return env.Namespace == string(n), nil }

// declared returns a declaration of a module, and a counter of how often the module is read.
func declared(name string, wasm []byte, options source.Options) (source.Declared, *atomic.Int64) {
	reads := &atomic.Int64{}
	return source.Declared{
		Name: name, Revision: name + "-1", Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(wasm)), Options: options,
		Read: func(context.Context) ([]byte, error) { reads.Add(1); return wasm, nil },
	}, reads
}

// declare declares plugins and returns their statuses.
func (w *world) declare(plugins ...source.Declared) map[string]source.Status {
	out := map[string]source.Status{}
	for _, s := range w.chains.Declare(context.Background(), plugins) {
		out[s.Name] = s
	}
	return out
}

// labelIn runs the outgoing chain of Services on an object in a namespace. It returns the label that the last plugin
// has set, or the error.
func labelIn(registry *host.Registry, namespace string) string {
	doc := document.New()
	doc.Reset(map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "x"}})
	if _, err := registry.Run(context.Background(), "Service", host.Outgoing, doc, &host.Env{Namespace: namespace}); err != nil {
		return err.Error()
	}
	by, _ := doc.Root().At("metadata.labels.by")
	text, _ := by.Text()
	return text
}

func TestDeclaredPluginsRunBesideThoseOfTheFolder(t *testing.T) {
	w := newWorld(t)
	early, _ := declared("early", plugin(t, "1", "Service"), source.Options{Priority: -5})
	late, reads := declared("late", plugin(t, "2", "*"), source.Options{Priority: 7, Kinds: []string{"Service"}})
	w.apply(map[string][]byte{"file.wasm": plugin(t, "3", "Service")})
	got := w.declare(late, early)
	w.expect("Service", "early@1 service@default file@3 late@2")
	w.expect("ConfigMap", "")
	if s := got["late"]; s.State != source.Loaded || !s.Running || s.Origin != source.OriginDeclared || s.Revision != "late-1" || s.Digest != late.Digest {
		t.Errorf("%+v", s)
	}
	// A change in one source of plugins must not change the plugins of the other source.
	w.apply(map[string][]byte{"other.wasm": plugin(t, "4", "Service")})
	w.expect("Service", "early@1 service@default other@4 late@2")
	w.declare(late)
	w.expect("Service", "service@default other@4 late@2")
	// A change in the order must not load any module.
	late.Options.Priority = -1
	w.declare(late)
	w.expect("Service", "late@2 service@default other@4")
	if n := reads.Load(); n != 1 {
		t.Errorf("the module was read %d times", n)
	}
	if s := w.apply(map[string][]byte{"late.wasm": plugin(t, "5", "Service")})["late"]; s.State != source.Failed || !strings.Contains(s.Message, "ReflectionPlugin") {
		t.Errorf("the name of a declared plugin: %+v", s)
	}
	w.expect("Service", "late@2 service@default")
	w.declare()
	w.apply(map[string][]byte{"late.wasm": plugin(t, "5", "Service")})
	if s := w.declare(late)["late"]; s.State != source.Failed || !strings.Contains(s.Message, "plugin directory") || !slices.Equal(s.Held, []string{"Service"}) {
		t.Errorf("the name of a file: %+v", s)
	}
}

// TestDeclaredPluginsAreSwappedAtOnce checks that no object can be mutated by one chain with the new plugins and by
// another one without them.
func TestDeclaredPluginsAreSwappedAtOnce(t *testing.T) {
	w := newWorld(t)
	d, _ := declared("all", plugin(t, "1", "*"), source.Options{})
	swaps := 0
	defer w.registry.Subscribe(func(string, host.Hook, uint64) {
		swaps++
		for _, kind := range kinds {
			if got := w.chain(kind, host.Incoming); !strings.HasSuffix(got, "all@1") {
				t.Errorf("%s: %s", kind, got)
			}
		}
	})()
	before := w.registry.Generation()
	w.declare(d)
	if swaps != 2*len(kinds) || w.registry.Generation() != before+1 {
		t.Errorf("%d chains in %d swaps", swaps, w.registry.Generation()-before)
	}
	w.declare(d)
	if w.registry.Generation() != before+1 {
		t.Error("the same plugins were swapped again")
	}
}

// TestReplacedDefaultRunsWhereItsReplacementDoesNot checks that a default plugin that is replaced only in some
// namespaces still runs on objects in all other namespaces.
func TestReplacedDefaultRunsWhereItsReplacementDoesNot(t *testing.T) {
	w := newWorld(t)
	shop, _ := declared("shop", plugin(t, "1", "Service"), source.Options{Replaces: "service"})
	shop.Selector = inNamespace("shop")
	bank, _ := declared("bank", plugin(t, "2", "Service"), source.Options{Replaces: "service"})
	bank.Selector = inNamespace("bank")
	expect := func(want map[string]string) {
		t.Helper()
		for namespace, label := range want {
			if got := labelIn(w.registry, namespace); got != label {
				t.Errorf("in %s: %s", namespace, got)
			}
		}
	}
	w.declare(shop, bank)
	expect(map[string]string{"shop": "1", "bank": "2", "other": "default"})
	w.declare(bank)
	expect(map[string]string{"shop": "default", "bank": "2"})
	generation := w.registry.Generation()
	w.declare(bank)
	if w.registry.Generation() != generation {
		t.Error("equal selectors were swapped")
	}
	shop.Selector = nil
	w.declare(shop, bank)
	expect(map[string]string{"shop": "1", "bank": "1", "other": "1"})
	w.expect("Service", "bank@2 shop@1")
}

// TestDeclaredPluginThatCannotRunHolds checks that objects wait for a declared plugin, for each reason why it cannot
// run.
func TestDeclaredPluginThatCannotRunHolds(t *testing.T) {
	good, _ := declared("a", plugin(t, "1", "*"), source.Options{Kinds: []string{"Service"}})
	for name, c := range map[string]struct {
		change func(*source.Declared)
		want   string
	}{
		"not read": {func(d *source.Declared) {
			d.Read = func(context.Context) ([]byte, error) { return nil, errors.New("no such PluginModule") }
		}, "no such PluginModule"},
		"altered": {func(d *source.Declared) {
			d.Read = func(context.Context) ([]byte, error) { return plugin(t, "2", "*"), nil }
		}, "has the digest sha256:"},
		"broken": {func(d *source.Declared) {
			*d, _ = declared("a", []byte("not wasm"), d.Options)
		}, "format"},
		"no digest":       {func(d *source.Declared) { d.Digest = "sha256:12" }, "digest"},
		"no revision":     {func(d *source.Declared) { d.Err = errors.New("its revision is gone") }, "its revision is gone"},
		"unknown default": {func(d *source.Declared) { d.Options.Replaces = "nobody" }, "nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			bad := good
			c.change(&bad)
			s := w.declare(bad)["a"]
			if s.State != source.Failed || s.Running || !slices.Equal(s.Held, []string{"Service"}) || !strings.Contains(s.Message, c.want) {
				t.Errorf("%+v", s)
			}
			if got := labelIn(w.registry, "shop"); !strings.Contains(got, "Service is held") || !strings.Contains(got, c.want) {
				t.Errorf("ran: %s", got)
			}
			if got := labelSet(w, "ConfigMap"); strings.Contains(got, "held") {
				t.Errorf("another kind: %s", got)
			}
			bad.Selector = inNamespace("shop")
			w.declare(bad)
			if got := labelIn(w.registry, "other"); got != "default" {
				t.Errorf("in another namespace: %s", got)
			}
			bad.Options.IgnoreFailure = true
			if s := w.declare(bad)["a"]; len(s.Held) > 0 || labelIn(w.registry, "shop") != "default" {
				t.Errorf("with ignoreFailure: %+v", s)
			}
			bad.Options.IgnoreFailure = false
			// A valid version must end the wait, and must stay in use when the plugin becomes invalid again. A module
			// that is already loaded must not be read again.
			w.declare(good)
			if s := w.declare(bad)["a"]; !s.Running || (s.State != source.Failed) != (name == "not read" || name == "altered") || len(s.Held) > 0 || labelIn(w.registry, "shop") != "1" {
				t.Errorf("after a good version: %+v", s)
			}
		})
	}
}

// TestCandidate checks that a candidate does not change the chains, shares modules, and keeps them loaded.
func TestCandidate(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t)
	old, oldReads := declared("a", plugin(t, "1", "Service"), source.Options{})
	file := map[string][]byte{"file.wasm": plugin(t, "3", "Service"), "file.yaml": []byte("priority: 9")}
	w.apply(file)
	w.declare(old)
	next, reads := declared("a", plugin(t, "2", "Service"), source.Options{Priority: 10})
	generation := w.registry.Generation()
	k, statuses, err := w.chains.NewCandidate(ctx, []source.Declared{next})
	require.NoError(t, err)
	if s := statuses[0]; len(statuses) != 1 || s.State != source.Loaded || s.Version != "2" {
		t.Errorf("%+v", statuses)
	}
	if got := labelIn(k.Registry(), ""); got != "2" || labelIn(w.registry, "") != "3" || w.registry.Generation() != generation {
		t.Errorf("the candidate gives %s", got)
	}
	require.Equal(t, []host.ChainKey{{Kind: "Service", Hook: host.Outgoing}, {Kind: "Service", Hook: host.Incoming}}, k.Changed())
	if !k.IsCurrent() {
		t.Error("it is not current")
	}
	if k.Registry().Chain("Service", host.Outgoing).Plugins()[1] != w.registry.Chain("Service", host.Outgoing).Plugins()[2] {
		t.Error("the module of the file is not shared")
	}
	// The candidate must continue to work after the plugins that it shares were removed from the chains.
	w.apply(nil)
	if !k.IsCurrent() || labelIn(k.Registry(), "") != "2" || len(k.Registry().Chain("Service", host.Outgoing).Plugins()) != 2 {
		t.Error("the candidate does not follow the plugin directory")
	}
	w.declare(next)
	if k.IsCurrent() {
		t.Error("it is current")
	}
	keep, _, err := w.chains.NewCandidate(ctx, []source.Declared{old})
	require.NoError(t, err)
	k.Close(ctx)
	k.Close(ctx)
	w.declare(old)
	if labelIn(w.registry, "") != "1" {
		t.Error("it was not rolled back")
	}
	keep.Close(ctx)
	if labelIn(w.registry, "") != "1" || oldReads.Load() != 2 || reads.Load() != 1 {
		t.Errorf("modules were read %d and %d times", oldReads.Load(), reads.Load())
	}
	require.NoError(t, w.chains.Close(ctx))
}

// TestCandidateFollowsTheFolder checks that the chains of a candidate always have the plugins of the directory and the
// kinds that the chains in use have, so that they differ in the declared plugins only.
func TestCandidateFollowsTheFolder(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t)
	now, _ := declared("a", plugin(t, "1", "Service", "Secret"), source.Options{})
	next, _ := declared("a", plugin(t, "2", "Service", "Secret"), source.Options{Priority: 9})
	w.declare(now)
	k, _, err := w.chains.NewCandidate(ctx, []source.Declared{next})
	require.NoError(t, err)
	check := func(kind, inUse, candidate string) {
		t.Helper()
		w.expect(kind, inUse)
		for _, hook := range []host.Hook{host.Outgoing, host.Incoming} {
			var names []string
			for _, p := range k.Registry().Chain(kind, hook).Plugins() {
				names = append(names, p.Name()+"@"+p.Version())
			}
			require.Equal(t, candidate, strings.Join(names, " "))
		}
		require.True(t, k.IsCurrent())
	}
	check("Service", "service@default a@1", "service@default a@2")
	for _, version := range []string{"3", "4"} {
		w.apply(map[string][]byte{"file.wasm": plugin(t, version, "Service")})
		check("Service", "service@default a@1 file@"+version, "service@default file@"+version+" a@2")
		require.Equal(t, "2", labelIn(k.Registry(), ""))
	}
	require.NoError(t, w.chains.AddKind("Secret"))
	check("Secret", "a@1", "a@2")
	w.apply(nil)
	check("Service", "service@default a@1", "service@default a@2")
	w.apply(map[string][]byte{"file.wasm": plugin(t, "3", "Service")[:50], "file.yaml": []byte("kinds: [Service]")})
	check("Service", "service@default a@1", "service@default a@2")

	// Another set of declared plugins is another candidate.
	other, _ := declared("b", plugin(t, "5", "Service"), source.Options{})
	w.declare(now, other)
	require.False(t, k.IsCurrent())
	w.apply(map[string][]byte{"file.wasm": plugin(t, "6", "Service")})
	require.False(t, k.IsCurrent())
	require.Equal(t, "2", labelIn(k.Registry(), ""))

	// Only the module that nobody else uses is closed.
	k.Close(ctx)
	require.NoError(t, w.chains.Close(ctx))
	require.Contains(t, labelIn(k.Registry(), ""), "closed")
	require.Equal(t, "6", labelIn(w.registry, ""))
}

// TestCandidatesRunWhileTheFolderChanges checks that the chains of candidates run without an error while files, kinds and
// declared plugins change, and candidates come and go.
func TestCandidatesRunWhileTheFolderChanges(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t)
	first, _ := declared("a", plugin(t, "1", "Service"), source.Options{Priority: 1})
	second, _ := declared("a", plugin(t, "2", "Service"), source.Options{Priority: 1})
	w.declare(first)
	file := func(version string) []source.Module {
		return []source.Module{{Name: "file", Wasm: plugin(t, version, "Service")}}
	}
	var changing sync.WaitGroup
	ended := make(chan struct{})
	change := func(changes ...func()) {
		changing.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-ended:
					return
				default:
					changes[n%len(changes)]()
				}
			}
		})
	}
	change(func() { w.chains.Apply(ctx, file("3")) }, func() { w.chains.Apply(ctx, file("4")) }, func() { w.chains.Apply(ctx, nil) })
	change(func() { w.declare(second) }, func() { w.declare(first) })
	change(func() { assert.NoError(t, w.chains.AddKind("Secret")) }, func() { w.chains.RemoveKind("Secret") })
	for range 30 {
		k, _, err := w.chains.NewCandidate(ctx, []source.Declared{second})
		require.NoError(t, err)
		for range 50 {
			if got := labelIn(k.Registry(), ""); got != "2" {
				t.Errorf("the candidate gives %s", got)
			}
		}
		k.Close(ctx)
	}
	close(ended)
	changing.Wait()
}

// TestBrokenFileAtStartHolds checks that if the file of a plugin is broken at the start and there is no good version,
// objects of all kinds that the plugin may support wait until the file is removed. No objects wait for a broken file
// that is added later.
func TestBrokenFileAtStartHolds(t *testing.T) {
	broken := plugin(t, "2", "Service")[:50]
	everything := []string{"Service", "Ingress.networking.k8s.io", "ConfigMap"}
	for name, c := range map[string]struct {
		files map[string][]byte
		held  []string
	}{
		"unknown kinds":   {map[string][]byte{"a.wasm": broken}, everything},
		"kinds":           {map[string][]byte{"a.wasm": broken, "a.yaml": []byte("kinds: [Service]")}, []string{"Service"}},
		"no kinds":        {map[string][]byte{"a.wasm": broken, "a.yaml": []byte("kinds: []")}, nil},
		"broken options":  {map[string][]byte{"a.wasm": plugin(t, "2", "Service"), "a.yaml": []byte("nonsense: true")}, everything},
		"unread options":  {map[string][]byte{"a.wasm": plugin(t, "2", "Service"), "a.YAML": []byte("kinds: [Service]")}, everything},
		"known manifest":  {map[string][]byte{"a.wasm": withManifest(t, `{"name":"a","version":"1","kinds":["Service"],"hooks":["outgoing"],"writes":[],"configSchema":{"type":"object","required":["x"]}}`)}, []string{"Service"}},
		"unknown default": {map[string][]byte{"a.wasm": plugin(t, "2", "Service"), "a.yaml": []byte("replaces: nobody\nkinds: [Service]")}, []string{"Service"}},
		"ignored failure": {map[string][]byte{"a.wasm": broken, "a.yaml": []byte("ignoreFailure: true")}, nil},
		"no module":       {map[string][]byte{"a.yaml": []byte("kinds: [Service]")}, []string{"Service"}},
		"two options":     {map[string][]byte{"a.yaml": []byte("kinds: [Service]"), "a.yml": []byte("kinds: [ConfigMap]")}, nil},
		"no plugin":       {map[string][]byte{"a.yaml": []byte("apiVersion: v1")}, nil},
		"ignored absence": {map[string][]byte{"a.yaml": []byte("ignoreFailure: true")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			check := func(when string, held []string) {
				t.Helper()
				for _, kind := range kinds {
					if got := labelSet(w, kind); strings.Contains(got, " is held") != slices.Contains(held, kind) {
						t.Errorf("%s: %s: %s", when, kind, got)
					}
				}
			}
			for range 2 {
				if s := w.apply(c.files)["a"]; s.State != source.Failed || !slices.Equal(s.Held, c.held) {
					t.Errorf("%+v", s)
				}
				check("broken", c.held)
			}
			w.apply(nil)
			check("gone", nil)
			w.apply(c.files)
			check("a new file that was never good", nil)
		})
	}
}

// TestADeclaredPluginThatDoesNotFitHoldsItsKinds checks that objects wait for a declared plugin if their chain is
// full, because they must not be reflected without the plugin, unless its failures are ignored.
func TestADeclaredPluginThatDoesNotFitHoldsItsKinds(t *testing.T) {
	w := newWorld(t)
	wasm := plugin(t, "many", "ConfigMap")
	var all []source.Declared
	for n := range 65 {
		all = append(all, declaredModule(fmt.Sprintf("p%02d", n), wasm))
	}
	last := func(statuses []source.Status) source.Status { return statuses[len(statuses)-1] }
	status := last(w.chains.Declare(t.Context(), all))
	assert.Equal(t, source.Failed, status.State)
	assert.Equal(t, []string{"ConfigMap"}, status.Held)
	assert.Contains(t, status.Message, "these kinds are held")
	assert.Contains(t, labelSet(w, "ConfigMap"), "p64")
	assert.Contains(t, labelSet(w, "Service"), "map[")

	all[64].Options.IgnoreFailure = true
	status = last(w.chains.Declare(t.Context(), all))
	assert.Empty(t, status.Held)
	assert.Contains(t, labelSet(w, "ConfigMap"), "by:many")

	// When the plugin fits into the chain, no object may wait.
	all[64].Options.IgnoreFailure = false
	w.chains.Declare(t.Context(), all)
	assert.Contains(t, labelSet(w, "ConfigMap"), "p64")
	w.chains.Declare(t.Context(), all[1:])
	assert.Contains(t, labelSet(w, "ConfigMap"), "by:many")
}

// declaredModule returns a declared plugin with a module.
func declaredModule(name string, wasm []byte) source.Declared {
	return source.Declared{
		Name: name, Revision: name + "-1", Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(wasm)),
		Read: func(context.Context) ([]byte, error) { return wasm, nil },
	}
}
