// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/source"
)

// TestEmptyListsRestrict checks that an empty list restricts a running plugin, and that the restriction ends when the
// list is removed.
func TestEmptyListsRestrict(t *testing.T) {
	wasm := plugin(t, "1", "Service")
	for _, c := range []struct{ options, label, chain string }{
		{"writes: []", "may not change", "service@default a@1"},
		{"kinds: []", "by:default", "service@default"},
	} {
		w := newWorld(t)
		open := map[string][]byte{"a.wasm": wasm}
		locked := map[string][]byte{"a.wasm": wasm, "a.yaml": []byte(c.options)}
		w.apply(open)
		if got := labelSet(w, "Service"); !strings.Contains(got, "by:1") {
			t.Fatalf("without options: %s", got)
		}
		if s := w.apply(locked)["a"]; s.State != source.Loaded {
			t.Errorf("%s: %s", c.options, s.Message)
		}
		if got := labelSet(w, "Service"); !strings.Contains(got, c.label) {
			t.Errorf("%s has no effect on a running plugin: %s", c.options, got)
		}
		w.expect("Service", c.chain)
		w.apply(open)
		if got := labelSet(w, "Service"); !strings.Contains(got, "by:1") {
			t.Errorf("removing %s has no effect: %s", c.options, got)
		}
	}
}

// TestNullOptions checks that a restriction is not lifted if all entries of its list are commented out: null is an
// error that names the list.
func TestNullOptions(t *testing.T) {
	for options, says := range map[string]string{
		"writes:":             "writes is null",
		"kinds: null":         "kinds is null",
		"capabilities: ~":     "capabilities is null",
		"writes: spec":        "writes",
		"priority: high":      "priority",
		"fresh: 1":            "fresh",
		"limits: {fuel: -1}":  "negative",
		"limits: {fuel: x}":   "fuel",
		"config: [a]":         "config",
		"Writes: []":          "Writes",
		"config: {}\n---\n{}": "second YAML document",
	} {
		s := newWorld(t).apply(map[string][]byte{"a.wasm": plugin(t, "1", "Service"), "a.yaml": []byte(options)})["a"]
		if s.State != source.Failed || !strings.Contains(s.Message, says) {
			t.Errorf("%q: %s %s", options, s.State, s.Message)
		}
	}
	for _, options := range []string{"{}", "config:", "config: {}", "limits:", "replaces: ''", "fresh: false", "priority: 0\n---\n# nothing\n"} {
		s := newWorld(t).apply(map[string][]byte{"a.wasm": plugin(t, "1", "Service"), "a.yaml": []byte(options)})["a"]
		if s.State != source.Loaded || len(s.Warnings) > 0 {
			t.Errorf("%q: %s %s", options, s.State, s.Message)
		}
	}
}

// TestOptionsFileWithoutOptions checks that an options file without options is reported, because it is probably a
// mistake: a full disk can cause an empty file, or all of its lines may be commented out.
func TestOptionsFileWithoutOptions(t *testing.T) {
	for _, options := range []string{"", "\n", "# writes: []\n", "null", "---\n", "---\n# none\n---\n"} {
		s := newWorld(t).apply(map[string][]byte{"a.wasm": plugin(t, "1", "Service"), "a.yml": []byte(options)})["a"]
		if s.State != source.Loaded || len(s.Warnings) != 1 || !strings.Contains(s.Message, "warning: a.yml is empty") {
			t.Errorf("%q: %s %s", options, s.State, s.Message)
		}
	}
}

func TestOptionsWithoutEffectAreReported(t *testing.T) {
	wasm := withManifest(t, `{"name":"test","version":"1","kinds":["Service"],"hooks":["outgoing"],"writes":["metadata.labels"],"Writes":["spec"],"side":"Provider"}`)
	s := newWorld(t).apply(map[string][]byte{"a.wasm": wasm, "a.yaml": []byte(`
kinds: [Service, ConfigMap]
writes: [spec.ports, "metadata.labels[example.org/*]"]
capabilities: [skip]
replaces: ingress
limits: {fuel: 0}`)})["a"]
	if s.State != source.Loaded {
		t.Fatal(s.Message)
	}
	for _, want := range []string{"kinds: ConfigMap", "writes: spec.ports", "capabilities: skip", "replaces: ingress", "limits.fuel is 0", `"Writes"`, `"side"`} {
		if !strings.Contains(strings.Join(s.Warnings, "\n"), want) || !strings.Contains(s.Message, want) {
			t.Errorf("no warning of %s: %q", want, s.Warnings)
		}
	}
	if len(s.Warnings) != 7 {
		t.Errorf("more warnings: %q", s.Warnings)
	}
}

// TestWarningsFollowTheFile checks that the warnings of a plugin change with its options file, even if the plugin is
// not loaded again because the options have the same meaning.
func TestWarningsFollowTheFile(t *testing.T) {
	w, wasm := newWorld(t), plugin(t, "1", "Service")
	for _, step := range []struct{ options, warning string }{
		{"{}", ""}, {"limits: {fuel: 0}", "limits.fuel is 0"}, {"limits: {handles: 0}", "limits.handles is 0"}, {"", "a.yaml is empty"}, {"{}", ""},
	} {
		s := w.apply(map[string][]byte{"a.wasm": wasm, "a.yaml": []byte(step.options)})["a"]
		if s.State != source.Loaded || (len(s.Warnings) == 0) != (step.warning == "") || !strings.Contains(s.Message, step.warning) {
			t.Errorf("%q: %s %s", step.options, s.State, s.Message)
		}
	}
}

// TestEveryFileIsUsedOrReported checks that no file in the directory is ignored silently.
func TestEveryFileIsUsedOrReported(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	write(t, dir, map[string][]byte{
		"a.wasm": plugin(t, "1", "Service"), "a.yml": []byte("priority: -1"),
		"b.wasm": plugin(t, "1", "Service"), "b.YAML": []byte("writes: []"),
		"c.wasm": plugin(t, "1", "Service"), "c.yml": []byte("priority: 1"), "c.yaml": []byte("priority: 2"),
		"d.yml": nil, "E.WASM": plugin(t, "1", "Service"), "f.wasm.gz": nil, "README.md": nil, ".hidden": nil,
	})
	require.NoError(t, os.Mkdir(dir+"/more", 0o700))
	d, err := source.NewDir(source.DirConfig{Path: dir, Chains: w.chains, Quiet: time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, d.Sync(context.Background()))
	want := map[string]string{
		"a": "Loaded loaded", "b": "Failed rename it to b.yaml", "c": "Failed remove one of them", "d": "Failed there is no d.wasm",
		"b.YAML": "Ignored in <name>.yaml", "E.WASM": "Ignored rename it to E.wasm", "f.wasm.gz": "Ignored uncompressed",
		"README.md": "Ignored a file <name>.wasm", "more": "Ignored subdirectories",
	}
	for _, s := range d.Statuses() {
		state, says, _ := strings.Cut(want[s.Name], " ")
		if string(s.State) != state || !strings.Contains(s.Message, says) || s.Path == "" {
			t.Errorf("%s: %s %s, want %q", s.Name, s.State, s.Message, want[s.Name])
		}
		delete(want, s.Name)
	}
	if len(want) > 0 {
		t.Errorf("not reported: %v", want)
	}
	if got := w.chain("Service", host.Outgoing); got != "a@1 service@default" {
		t.Error(got)
	}
}

// TestDanglingOptions checks that a link to missing options is reported as an error of the plugin.
func TestDanglingOptions(t *testing.T) {
	for _, suffix := range []string{".yaml", ".yml"} {
		w, dir := newWorld(t), t.TempDir()
		write(t, dir, map[string][]byte{"a.wasm": plugin(t, "1", "Service")})
		link(t, "nowhere", dir+"/a"+suffix)
		d, err := source.NewDir(source.DirConfig{Path: dir, Chains: w.chains, Quiet: time.Millisecond})
		require.NoError(t, err)
		require.NoError(t, d.Sync(context.Background()))
		if s := d.Statuses()[0]; s.State != source.Failed || s.Running || !strings.Contains(s.Message, "a"+suffix) {
			t.Errorf("%s %s", s.State, s.Message)
		}
		w.expect("Service", "service@default")
		if m := source.ReadFile(dir + "/a.wasm"); m.Err == nil {
			t.Error("a single file is read without its options")
		}
	}
}

// TestPollReadsModuleAndOptionsTogether checks that a module never runs without its options, even if it is copied
// before them and only polls find the files.
func TestPollReadsModuleAndOptionsTogether(t *testing.T) {
	w, elsewhere, dir := newWorld(t), t.TempDir(), t.TempDir()
	// The file is a link, because changes to the target of a link cause no notifications.
	link(t, elsewhere+"/wasm", dir+"/a.wasm")
	link(t, elsewhere+"/yaml", dir+"/a.yaml")
	r := &reports{}
	d, err := source.NewDir(source.DirConfig{Path: dir, Chains: w.chains, Quiet: time.Second, Poll: time.Millisecond, OnStatus: r.add})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	defer func() { cancel(); require.NoError(t, <-done) }()
	// These writes take much longer than the poll interval, so that several polls happen before the options are
	// complete.
	for n := range 8 {
		write(t, elsewhere, map[string][]byte{"wasm": plugin(t, fmt.Sprint(n), "Service")})
		time.Sleep(50 * time.Millisecond)
	}
	write(t, elsewhere, map[string][]byte{"yaml": []byte("kinds: []")})
	eventually(t, "the plugin", func() bool { return r.have("a Loaded") })
	if r.have("running=true") {
		t.Errorf("the plugin ran without its options: %q", r.all)
	}
}
