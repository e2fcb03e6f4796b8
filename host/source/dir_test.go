// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/host/source"
)

// reports collects the statuses that a Dir reports.
type reports struct {
	mu  sync.Mutex
	all []string
}

func (r *reports) add(s source.Status, removed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, fmt.Sprintf("%s %s removed=%t running=%t %s", s.Name, s.State, removed, s.Running, s.Message))
}

func (r *reports) have(parts ...string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, line := range r.all {
		found := true
		for _, p := range parts {
			found = found && strings.Contains(line, p)
		}
		if found {
			return true
		}
	}
	return false
}

// watch runs a Dir until the test ends, with a poll interval that is longer than any test, so that only notifications
// have an effect.
func (w *world) watch(path string) *reports {
	w.t.Helper()
	r := &reports{}
	d, err := source.NewDir(source.DirConfig{
		Path: path, Chains: w.chains, OnStatus: r.add, Quiet: w.quiet, Poll: time.Hour,
	})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		assert.NoError(w.t, <-done)
	})
	return r
}

func (w *world) await(kind, want string) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("%q in the chain of %s (it is %q)", want, kind, w.chain(kind, host.Outgoing)),
		func() bool { return w.chain(kind, host.Outgoing) == want && w.chain(kind, host.Incoming) == want })
}

// rename replaces a file atomically: it writes another file and renames it.
func rename(t testing.TB, dir, name string, data []byte) {
	t.Helper()
	write(t, dir, map[string][]byte{".tmp": data})
	require.NoError(t, os.Rename(filepath.Join(dir, ".tmp"), filepath.Join(dir, name)))
}

func TestDirLifeOfAFile(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	write(t, dir, map[string][]byte{"first.wasm": plugin(t, "1", "Service")})
	r := w.watch(dir)
	w.await("Service", "service@default first@1")
	write(t, dir, map[string][]byte{"second.wasm": plugin(t, "1", "Service"), "second.yaml": []byte("priority: -5")})
	w.await("Service", "second@1 service@default first@1")
	rename(t, dir, "first.wasm", plugin(t, "2", "Service"))
	w.await("Service", "second@1 service@default first@2")
	rename(t, dir, "first.wasm", []byte("broken"))
	eventually(t, "the report of the broken file", func() bool { return r.have("first Failed", "running=true", "runs on") })
	w.expect("Service", "second@1 service@default first@2")
	if !r.have("second Loaded", "running=true") {
		t.Error("the other plugin is not reported as loaded")
	}
	rename(t, dir, "first.wasm", plugin(t, "3", "Service"))
	w.await("Service", "second@1 service@default first@3")
	require.NoError(t, os.Remove(filepath.Join(dir, "second.yaml")))
	w.await("Service", "service@default first@3 second@1")
	require.NoError(t, os.Remove(filepath.Join(dir, "first.wasm")))
	w.await("Service", "service@default second@1")
	eventually(t, "the report of the removal", func() bool { return r.have("first", "removed=true", "running=false") })
}

// TestDirConfigMap checks that plugins are swapped when a kubelet updates a mounted ConfigMap: the files are links
// through ..data, which is replaced by a rename.
func TestDirConfigMap(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	version := func(name string, files map[string][]byte) {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		write(t, filepath.Join(dir, name), files)
		link(t, name, filepath.Join(dir, "..data"))
	}
	version("..2024_01", map[string][]byte{"a.wasm": plugin(t, "1", "Service")})
	link(t, filepath.Join("..data", "a.wasm"), filepath.Join(dir, "a.wasm"))
	w.watch(dir)
	w.await("Service", "service@default a@1")
	version("..2024_02", map[string][]byte{"a.wasm": plugin(t, "2", "Service")})
	w.await("Service", "service@default a@2")
}

// link creates a symbolic link atomically. An existing link is replaced.
func link(t testing.TB, target, path string) {
	t.Helper()
	require.NoError(t, os.Symlink(target, path+".new"))
	require.NoError(t, os.Rename(path+".new", path))
}

// TestDirReplaced checks that changes are found after the directory itself was replaced by a link to another directory,
// or was deleted and created again. TestDirGoneChangesNothing checks a directory that is missing.
func TestDirReplaced(t *testing.T) {
	w, root := newWorld(t), t.TempDir()
	for i, name := range []string{"one", "two"} {
		require.NoError(t, os.Mkdir(filepath.Join(root, name), 0o700))
		write(t, filepath.Join(root, name), map[string][]byte{"a.wasm": plugin(t, fmt.Sprint(i+1), "Service")})
	}
	current := filepath.Join(root, "current")
	link(t, "one", current)
	w.watch(current)
	w.await("Service", "service@default a@1")
	link(t, "two", current)
	w.await("Service", "service@default a@2")
	rename(t, filepath.Join(root, "two"), "a.wasm", plugin(t, "3", "Service"))
	w.await("Service", "service@default a@3")
	require.NoError(t, os.Remove(current))
	require.NoError(t, os.Mkdir(current, 0o700))
	w.await("Service", "service@default")
	write(t, current, map[string][]byte{"b.wasm": plugin(t, "1", "Service")})
	w.await("Service", "service@default b@1")
}

func TestDirGoneChangesNothing(t *testing.T) {
	w, dir := newWorld(t), filepath.Join(t.TempDir(), "plugins")
	require.NoError(t, os.Mkdir(dir, 0o700))
	write(t, dir, map[string][]byte{"a.wasm": plugin(t, "1", "Service")})
	d, err := source.NewDir(source.DirConfig{Path: dir, Chains: w.chains})
	require.NoError(t, err)
	require.NoError(t, d.Sync(context.Background()))
	require.NoError(t, os.RemoveAll(dir))
	if err := d.Sync(context.Background()); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
	w.expect("Service", "service@default a@1")
}

func TestDirMustExist(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, path := range []string{file, file + ".none"} {
		if _, err := source.NewDir(source.DirConfig{Path: path}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

// TestDirSlowCopy checks that a module that is written block by block is loaded, and that the incomplete file is
// never reported as broken.
func TestDirSlowCopy(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	// The quiet period must be longer than the pauses of this test between two blocks, even on a busy machine.
	w.quiet = time.Second
	write(t, dir, map[string][]byte{"a.wasm": plugin(t, "1", "Service")})
	r := w.watch(dir)
	w.await("Service", "service@default a@1")
	data := plugin(t, "2", "Service")
	f, err := os.Create(filepath.Join(dir, "a.wasm"))
	require.NoError(t, err)
	for len(data) > 0 {
		n := min(16, len(data))
		_, err = f.Write(data[:n])
		require.NoError(t, err)
		data = data[n:]
	}
	require.NoError(t, f.Close())
	w.await("Service", "service@default a@2")
	if r.have("a Failed") {
		t.Error("an unfinished copy was loaded")
	}
}

// TestDirPolls checks that changes are found without notifications.
func TestDirPolls(t *testing.T) {
	w, dir, elsewhere := newWorld(t), t.TempDir(), t.TempDir()
	write(t, elsewhere, map[string][]byte{"x": plugin(t, "1", "Service")})
	// Changes behind a link cause no notifications.
	link(t, filepath.Join(elsewhere, "x"), filepath.Join(dir, "a.wasm"))
	d, err := source.NewDir(source.DirConfig{Path: dir, Chains: w.chains, Poll: 20 * time.Millisecond})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- d.Run(ctx) }()
	w.await("Service", "service@default a@1")
	rename(t, elsewhere, "x", plugin(t, "2", "Service"))
	w.await("Service", "service@default a@2")
	cancel()
	assert.NoError(t, <-done)
}

// TestDirHammer checks that while a file is added, changed, broken and removed, no run of the chain on an object fails,
// and a plugin runs each time.
func TestDirHammer(t *testing.T) {
	w, dir := newWorld(t), t.TempDir()
	w.watch(dir)
	stop := make(chan struct{})
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			doc, env := document.New(), &host.Env{}
			for {
				select {
				case <-stop:
					return
				default:
				}
				doc.Reset(map[string]any{"kind": "Service", "metadata": map[string]any{"name": "x"}})
				if _, err := w.registry.Run(context.Background(), "Service", host.Outgoing, doc, env); err != nil {
					t.Errorf("running the chain: %v", err)
					return
				}
				labels, _ := doc.Value()["metadata"].(map[string]any)["labels"].(map[string]any)
				if labels["by"] == nil {
					t.Error("no plugin ran")
					return
				}
			}
		})
	}
	for i := range 8 {
		version := fmt.Sprint(i)
		rename(t, dir, "a.wasm", plugin(t, version, "Service"))
		w.await("Service", "service@default a@"+version)
		rename(t, dir, "a.wasm", []byte("broken"))
		if i%3 == 2 {
			require.NoError(t, os.Remove(filepath.Join(dir, "a.wasm")))
			w.await("Service", "service@default")
		}
	}
	close(stop)
	workers.Wait()
}
