// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host/source"
)

func TestReadFS(t *testing.T) {
	modules, err := source.ReadFS(fstest.MapFS{
		"pod/pod.wasm":    {Data: []byte("p")},
		"pod/main.go":     {Data: []byte("package main")},
		"deep/x/abc.wasm": {Data: []byte("a")},
		"deep/x/abc.yaml": {Data: []byte("priority: 7\nconfig: {replicas: 3, ratio: 0.5}\nlimits: {memoryPages: 12}")},
	})
	require.NoError(t, err)
	if got := names(modules); !slices.Equal(got, []string{"abc", "pod"}) {
		t.Fatalf("found %v", got)
	}
	abc := modules[slices.IndexFunc(modules, func(m source.Module) bool { return m.Name == "abc" })]
	if abc.Err != nil || abc.Options.Priority != 7 || abc.Options.Limits.MemoryPages != 12 {
		t.Errorf("options %+v, %v", abc.Options, abc.Err)
	}
	if n, ok := abc.Options.Config["replicas"].(int64); !ok || n != 3 {
		t.Errorf("a whole number is read as %T", abc.Options.Config["replicas"])
	}
}

// TestReadDirReportsEachBadFile checks that every problem is reported with the name of the file, and does not affect
// other files.
func TestReadDirReportsEachBadFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string][]byte{
		"good.wasm": []byte("x"), ".hidden.wasm": []byte("x"), "notes.txt": []byte("x"),
		"unknown.wasm": []byte("x"), "unknown.yaml": []byte("priorty: 3"),
		"torn.wasm": []byte("x"), "torn.yaml": []byte("config: {"),
		"typed.wasm": []byte("x"), "typed.yaml": []byte("priority: high"),
		"twice.wasm": []byte("x"), "twice.yaml": []byte("priority: 1\npriority: 2"),
		"alone.yaml": []byte("priority: 3"),
	})
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder.wasm"), 0o700))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe.wasm"), 0o600))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "dangling.wasm")))
	modules, err := source.ReadDir(dir)
	require.NoError(t, err)
	want := map[string]string{
		"good": "", "unknown": "priorty", "torn": "torn.yaml", "typed": "priority", "twice": "priority",
		"alone": "no alone.wasm", "folder": "not a regular file", "pipe": "not a regular file", "dangling": "no such file",
	}
	if len(modules) != len(want) {
		t.Errorf("found %v", names(modules))
	}
	for _, m := range modules {
		text := ""
		if m.Err != nil {
			text = m.Err.Error()
		}
		if (text == "") != (want[m.Name] == "") || !strings.Contains(text, want[m.Name]) {
			t.Errorf("%s: %q, want %q in it", m.Name, text, want[m.Name])
		}
	}
}

func TestReadDirThatIsNotThere(t *testing.T) {
	if _, err := source.ReadDir(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
