// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/source"
)

// failures are the numbers of failures that were counted at a start, one for each folder.
type failures struct{ compiled, lastGood int64 }

// start starts a process with a plugin cache and one additional plugin. Whatever the state of the cache, all plugins
// must load and objects must be reflected.
func start(t *testing.T, cache string, modules []source.Module) failures {
	t.Helper()
	return startWith(t, cache, modules, source.Loaded)
}

// startWith does the same as start, and checks that the additional plugin has the given state. If the state is
// Failed, the last good version of the plugin must run.
func startWith(t *testing.T, cache string, modules []source.Module, state source.State) failures {
	t.Helper()
	ctx := context.Background()
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	h, err := host.New(ctx, host.NewConfig().WithLogger(logger).WithCacheDir(filepath.Join(cache, "compiled")))
	require.NoError(t, err)
	defaults, err := source.ReadFS(fstest.MapFS{"service.wasm": {Data: plugin(t, "default", "Service")}})
	require.NoError(t, err)
	w := &world{t: t, registry: host.NewRegistry(nil)}
	c, err := source.NewChains(ctx, source.ChainsConfig{
		Host: h, Registry: w.registry, Kinds: kinds, Defaults: defaults,
		LastGoodDir: filepath.Join(cache, "last-good"), Logger: logger,
	})
	require.NoError(t, err)
	for _, s := range c.Apply(ctx, modules) {
		if s.State != state || !s.Running {
			t.Errorf("%s: %s", s.Name, s.Message)
		}
	}
	if got, want := labelSet(w, "Service"), "map[labels:map[by:1] name:x]"; got != want {
		t.Errorf("a Service crosses as %s, want %s", got, want)
	}
	require.NoError(t, c.Close(ctx))
	require.NoError(t, h.Close(ctx))
	counted := failures{h.CacheFailures(), c.LastGoodFailures()}
	for folder, isCounted := range map[string]bool{"compiled": counted.compiled > 0, "last-good": counted.lastGood > 0} {
		if isCounted != hasWarning(log.String(), filepath.Join(cache, folder)) {
			t.Errorf("%s: counted %t, but the log says %s", folder, isCounted, log.String())
		}
	}
	return counted
}

// hasWarning reports whether the log has a warning with the name of the folder.
func hasWarning(log, folder string) bool {
	for line := range strings.Lines(log) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, folder) {
			return true
		}
	}
	return false
}

// smallDisk mounts a small file system. If mounting is not permitted, the test is skipped.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

func fill(t *testing.T, file string) {
	t.Helper()
	f, err := os.Create(file)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err := f.Write(block); err != nil {
			block = block[:len(block)/2]
		}
	}
}

// cached returns the names of the files in the cache.
func cached(t *testing.T, cache string) (files []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(cache, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, path)
		}
		return err
	}))
	return files
}

// myModules returns one plugin in the form in which it is read from the directory.
func myModules(t *testing.T) []source.Module {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, map[string][]byte{"mine.wasm": plugin(t, "1", "Service"), "mine.yaml": []byte("priority: 3\n")})
	modules, err := source.ReadDir(dir)
	require.NoError(t, err)
	return modules
}

func TestCacheOnAFullDisk(t *testing.T) {
	disk, modules := smallDisk(t), myModules(t)
	filler, cache := filepath.Join(disk, "filler"), filepath.Join(disk, "cache")
	fill(t, filler)
	if got := start(t, cache, modules); got.compiled == 0 || got.lastGood == 0 {
		t.Errorf("a full disk is not reported: %+v", got)
	}
	require.NoError(t, os.Remove(filler))
	if got := start(t, cache, modules); got != (failures{}) {
		t.Errorf("it is reported although there is space again: %+v", got)
	}
	files := cached(t, cache)
	if len(files) != 3 {
		t.Errorf("%d files, want those of two compiled modules and one last good version", len(files))
	}
	// Damaged files cannot be repaired while the disk is full. The next start with free space must repair them.
	for _, file := range files {
		good, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(file, int64(len(good)/2)))
		fill(t, filler)
		start(t, cache, modules)
		start(t, cache, modules)
		require.NoError(t, os.Remove(filler))
		start(t, cache, modules)
		if got := start(t, cache, modules); got != (failures{}) {
			t.Errorf("%s: not put right when there is space again: %+v", filepath.Base(file), got)
		}
		if again, err := os.ReadFile(file); err != nil || len(again) != len(good) {
			t.Errorf("%s: %d bytes afterwards, %d before: %v", filepath.Base(file), len(again), len(good), err)
		}
	}
}

// TestPluginFolderOnAFullDisk checks that if the modules or their options are truncated because their disk is full, as
// after a failed copy, the last good version runs after each start until the file is restored. If a file of the cache
// is truncated, the plugin must be loaded, and the file must be repaired when there is space again.
func TestPluginFolderOnAFullDisk(t *testing.T) {
	disk := smallDisk(t)
	filler, cache, folder := filepath.Join(disk, "filler"), filepath.Join(disk, "cache"), filepath.Join(disk, "plugins")
	require.NoError(t, os.Mkdir(folder, 0o700))
	write(t, folder, map[string][]byte{"mine.wasm": plugin(t, "1", "Service"), "mine.yaml": []byte("priority: 3\n")})
	read := func() []source.Module {
		modules, err := source.ReadDir(folder)
		require.NoError(t, err)
		return modules
	}
	start(t, cache, read())
	own, derived := cached(t, folder), cached(t, cache)
	require.Len(t, own, 2)
	for _, file := range append(own, derived...) {
		good, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(file, int64(len(good)/2)))
		fill(t, filler)
		state := source.Loaded
		if filepath.Dir(file) == folder {
			state = source.Failed
		}
		for range 2 {
			startWith(t, cache, read(), state)
		}
		require.NoError(t, os.Remove(filler))
		if state == source.Failed {
			require.NoError(t, os.WriteFile(file, good, 0o600))
		}
		start(t, cache, read())
		if got := start(t, cache, read()); got != (failures{}) {
			t.Errorf("%s: not put right when there is space again: %+v", filepath.Base(file), got)
		}
		if again, err := os.ReadFile(file); err != nil || len(again) != len(good) {
			t.Errorf("%s: %d bytes afterwards, %d before: %v", filepath.Base(file), len(again), len(good), err)
		}
	}
}

// TestCacheOnAReadOnlyDisk checks that a process can start although a damaged file cannot be removed.
func TestCacheOnAReadOnlyDisk(t *testing.T) {
	disk, modules := smallDisk(t), myModules(t)
	cache := filepath.Join(disk, "cache")
	start(t, cache, modules)
	for _, file := range cached(t, cache) {
		require.NoError(t, os.Truncate(file, 10))
	}
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Skipf("it cannot be made read-only: %v", err)
	}
	if got := start(t, cache, modules); got.compiled == 0 || got.lastGood == 0 {
		t.Errorf("a read-only disk is not reported: %+v", got)
	}
	require.NoError(t, syscall.Mount("", disk, "", syscall.MS_REMOUNT, ""))
	start(t, cache, modules)
	if got := start(t, cache, modules); got != (failures{}) {
		t.Errorf("not put right when it can be written again: %+v", got)
	}
}

// TestCacheOfAnotherVersion checks that a process can start with a cache that only has files from another version of
// the engine.
func TestCacheOfAnotherVersion(t *testing.T) {
	cache, modules := filepath.Join(t.TempDir(), "cache"), myModules(t)
	start(t, cache, modules)
	compiled := filepath.Join(cache, "compiled")
	folders, err := os.ReadDir(compiled)
	require.NoError(t, err)
	for _, folder := range folders {
		require.NoError(t, os.Rename(filepath.Join(compiled, folder.Name()), filepath.Join(compiled, folder.Name()+"-other")))
	}
	for range 2 {
		if got := start(t, cache, modules); got != (failures{}) {
			t.Errorf("files of another version are taken for damage: %+v", got)
		}
	}
}

func TestCacheFolderOfAnotherType(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "cache")
	require.NoError(t, os.WriteFile(cache, []byte("a file"), 0o600))
	if got := start(t, cache, myModules(t)); got.compiled == 0 || got.lastGood == 0 {
		t.Errorf("a file in place of the folder is not reported: %+v", got)
	}
	require.NoError(t, os.Remove(cache))
	if got := start(t, cache, myModules(t)); got != (failures{}) {
		t.Errorf("it is reported although the folder can be made: %+v", got)
	}
}

// TestCacheDamagedFileByFile checks that after any file was damaged in different ways, the next start loads all
// plugins and repairs the file.
func TestCacheDamagedFileByFile(t *testing.T) {
	cache, modules := filepath.Join(t.TempDir(), "cache"), myModules(t)
	start(t, cache, modules)
	files := cached(t, cache)
	require.Len(t, files, 3)
	for _, file := range files {
		good, err := os.ReadFile(file)
		require.NoError(t, err)
		for name, damage := range map[string]func() error{
			"emptied":  func() error { return os.WriteFile(file, nil, 0o600) },
			"halved":   func() error { return os.WriteFile(file, good[:len(good)/2], 0o600) },
			"zeroed":   func() error { return os.WriteFile(file, make([]byte, len(good)), 0o600) },
			"lengthed": func() error { return os.WriteFile(file, append(good[:len(good):len(good)], 0), 0o600) },
			"removed":  func() error { return os.Remove(file) },
			"folder": func() error {
				return os.Remove(file)
			},
		} {
			require.NoError(t, damage())
			if name == "folder" {
				require.NoError(t, os.MkdirAll(filepath.Join(file, "below"), 0o700))
			}
			start(t, cache, modules)
			if got := start(t, cache, modules); got != (failures{}) {
				t.Errorf("%s %s: not put right by the start after it: %+v", filepath.Base(file), name, got)
			}
			if again, err := os.ReadFile(file); err != nil || len(again) != len(good) {
				t.Errorf("%s %s: %d bytes afterwards, %d before: %v", filepath.Base(file), name, len(again), len(good), err)
			}
		}
	}
}

// TestCacheBitByBit checks that code in which one bit was changed never runs, for many positions of the bit.
func TestCacheBitByBit(t *testing.T) {
	cache, modules := filepath.Join(t.TempDir(), "cache"), myModules(t)
	start(t, cache, modules)
	for _, file := range cached(t, cache) {
		good, err := os.ReadFile(file)
		require.NoError(t, err)
		for at := 0; at < len(good); at += 1 + len(good)/16 {
			bad := append([]byte(nil), good...)
			bad[at] ^= 1 << (at % 7)
			require.NoError(t, os.WriteFile(file, bad, 0o600))
			start(t, cache, modules)
		}
	}
}

// TestLastGoodIsWrittenAgain checks that the files are written again after another program has removed them, as
// cleaners of temporary folders do.
func TestLastGoodIsWrittenAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "last-good")
	files := map[string][]byte{"a.wasm": plugin(t, "1", "Service"), "a.yaml": []byte("priority: 7")}
	before := newWorldWith(t, dir)
	before.apply(files)
	require.NoError(t, os.RemoveAll(dir))
	before.apply(files)
	after := newWorldWith(t, dir)
	after.apply(map[string][]byte{"a.wasm": []byte("rubbish")})
	after.expect("Service", "service@default a@1")
}

// TestLastGoodMeansTheSame checks that, after a restart, the last-good version of a plugin is loaded with the same
// effective options.
func TestLastGoodMeansTheSame(t *testing.T) {
	schema := `"configSchema":{"type":"object","required":["id","ratio"],"properties":{"id":{"type":"integer"},"ratio":{"type":"number"}}}`
	wasm := withManifest(t, `{"name":"test","version":"1","kinds":["*"],"hooks":["outgoing","incoming"],"writes":["metadata.labels"],`+schema+`}`)
	for name, options := range map[string]string{
		"numbers":     "config: {id: 9007199254740993, ratio: 0.5}",
		"nothing":     "config: {id: 9007199254740993, ratio: 2}\nwrites: []",
		"no kinds":    "config: {id: 9007199254740993, ratio: 2}\nkinds: []",
		"other texts": "# a comment\nconfig: &c {id: 0x20000000000001, ratio: 1e2}\npriority: 1_0",
	} {
		dir := t.TempDir()
		before := newWorldWith(t, dir)
		if s := before.apply(map[string][]byte{"a.wasm": wasm, "a.yaml": []byte(options)})["a"]; s.State != source.Loaded {
			t.Fatalf("%s: %s", name, s.Message)
		}
		after := newWorldWith(t, dir)
		after.apply(map[string][]byte{"a.wasm": []byte("rubbish"), "a.yaml": []byte(options)})
		for _, kind := range kinds {
			if got, want := after.chain(kind, host.Outgoing), before.chain(kind, host.Outgoing); got != want {
				t.Errorf("%s: the chain of %s is %q after a restart, %q before", name, kind, got, want)
			}
			if got, want := labelSet(after, kind), labelSet(before, kind); got != want {
				t.Errorf("%s: it writes %q after a restart, %q before", name, got, want)
			}
		}
	}
}
