// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/test/support/wattest"
)

func newChains(t *testing.T, lastGood string) *Chains {
	t.Helper()
	h, err := host.New(t.Context(), host.NewConfig().WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.Close(context.Background()) })
	c, err := NewChains(t.Context(), ChainsConfig{Host: h, Registry: host.NewRegistry(nil), Kinds: []string{"Service"}, LastGoodDir: lastGood})
	require.NoError(t, err)
	return c
}

func module(t *testing.T, start string) []byte {
	t.Helper()
	wasm, err := wattest.Assemble(wattest.Plugin(`{"name":"m","version":"1","kinds":["*"],"hooks":["outgoing"],"writes":["*"]}`, "",
		`(func (export "outgoing") (result i32) (i32.const 0)) (func (export "_initialize") `+start+`)`))
	require.NoError(t, err)
	return wasm
}

// TestUnchangedFilesAreNotReadAgain checks that no file is opened if nothing has changed, and that a change is found
// even if the size and the modification time are the same.
func TestUnchangedFilesAreNotReadAgain(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "m.wasm")
	long := time.Now().Add(-time.Hour)
	wasm := module(t, "")
	write := func(content []byte) {
		t.Helper()
		require.NoError(t, os.WriteFile(file, content, 0o600))
		require.NoError(t, os.Chtimes(file, long, long))
	}
	write(wasm)
	d, err := NewDir(DirConfig{Path: dir, Chains: newChains(t, ""), Quiet: time.Millisecond})
	require.NoError(t, err)
	defer d.closeWatcher()
	content := func() *byte {
		t.Helper()
		require.NoError(t, d.Sync(t.Context()))
		return &d.read["m.wasm"].module.Wasm[0]
	}
	require.Eventually(t, func() bool {
		before := content()
		return before == content()
	}, time.Minute, time.Millisecond,
		"it is read again and again although it is older than the grain of time stamps")
	write(make([]byte, len(wasm)))
	content()
	if d.statuses[0].State == Loaded {
		t.Error("it was not read although its content is another")
	}
}

// TestChangeWithinTheGrain checks that a file that was read right after it was written is read again, because another
// write may leave its time stamps equal, and that a file that was read later is not.
func TestChangeWithinTheGrain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m")
	require.NoError(t, os.WriteFile(file, []byte("x"), 0o600))
	info := statFile(file)
	files := []os.FileInfo{info}
	if (seen{files: files, at: changeTime(info).Add(timestampGrace / 2)}).isUnchanged(files) {
		t.Error("a file that was read within the grain of its time stamp is not read again")
	}
	if !(seen{files: files, at: changeTime(info).Add(2 * timestampGrace)}).isUnchanged(files) {
		t.Error("a file that was read later is read again")
	}
}

// TestDanglingLinkIsAChange checks that options that appear as a link without a target are read, and do not count as
// missing.
func TestDanglingLinkIsAChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.yaml")
	before := seen{files: []os.FileInfo{statFile(file)}, at: time.Now()}
	require.NoError(t, os.Symlink("nowhere", file))
	if before.isUnchanged([]os.FileInfo{statFile(file)}) {
		t.Error("it looks as if there were no file")
	}
}

// TestRefusedIsNotCompiledAgain checks that a module is not compiled again if its bytes or options are the cause of
// the error.
func TestRefusedIsNotCompiledAgain(t *testing.T) {
	c := newChains(t, "")
	for name, m := range map[string]Module{
		"corrupt": {Name: "m", Wasm: []byte("nonsense")},
		"kinds":   {Name: "m", Wasm: module(t, ""), Options: Options{Kinds: []string{"Pod"}, Writes: []string{"["}}},
	} {
		first := c.Apply(t.Context(), []Module{m})[0].Err
		again := c.Apply(t.Context(), []Module{m})[0].Err
		// The identical error value shows that the module was not loaded again.
		if first == nil || first != again {
			t.Errorf("%s: %v, then %v", name, first, again)
		}
	}
}

// TestTransientRefusalIsTriedAgain checks that after an error of the machine, loading a module is retried with
// increasing delays.
func TestTransientRefusalIsTriedAgain(t *testing.T) {
	c := newChains(t, "")
	now, tries, problem := time.Now(), 0, error(&host.LoadError{Plugin: "m", Stage: host.StageCompile, Err: fmt.Errorf("mapping memory, %w", syscall.ENOMEM)})
	c.now = func() time.Time { return now }
	load := c.hostLoad
	c.hostLoad = func(ctx context.Context, name string, wasm []byte, pc host.PluginConfig) (*host.Plugin, error) {
		tries++
		if problem != nil {
			return nil, problem
		}
		return load(ctx, name, wasm, pc)
	}
	m := []Module{{Name: "m", Wasm: module(t, "")}}
	apply := func(after time.Duration) State {
		now = now.Add(after)
		return c.Apply(t.Context(), m)[0].State
	}
	for n, step := range []struct {
		after time.Duration
		tries int
	}{{0, 1}, {time.Second, 1}, {5 * time.Second, 2}, {5 * time.Second, 2}, {5 * time.Second, 3}, {time.Hour, 4}, {10 * time.Second, 4}} {
		if state := apply(step.after); state != Failed || tries != step.tries {
			t.Errorf("step %d: %s after %d tries, want %d", n, state, tries, step.tries)
		}
	}
	problem = nil
	if state := apply(maxRetryDelay); state != Loaded {
		t.Errorf("it is %s after the cause has gone", state)
	}
}

// TestNoLockWhileCompiling checks that kinds can be added and removed while a module takes long to load.
func TestNoLockWhileCompiling(t *testing.T) {
	c := newChains(t, "")
	// Loading this module takes long, because it runs until its fuel is used up.
	slow := module(t, `(loop $l (br $l))`)
	m := Module{Name: "slow", Wasm: slow, Options: Options{Limits: Limits{Fuel: 2_000_000_000}}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Apply(context.Background(), []Module{m})
	}()
	// The test waits until Apply has taken the lock.
	for c.applying.TryLock() {
		c.applying.Unlock()
		time.Sleep(time.Millisecond)
	}
	assert.NoError(t, c.AddKind("Widget.example.org"))
	select {
	case <-done:
		t.Error("the kind had to wait for the module")
	default:
	}
	<-done
}

// TestKeptOptionsAreTheSame checks that every option has the same value after it was stored and read again, whether
// it comes from a file or from a program.
func TestKeptOptionsAreTheSame(t *testing.T) {
	texts := []string{
		"", "{}", "config: {id: 9007199254740993, ratio: 0.5, whole: 1e2, hex: 0x10, none: null, empty: {}, list: [], text: \"1\"}",
		"writes: []", "kinds: []\ncapabilities: []", "writes: [a]\nkinds: [Pod]\ncapabilities: [skip]\nreplaces: pod\npriority: -3\nfresh: true\nignoreFailure: true",
		"limits: {fuel: 1, memoryPages: 2, outputBytes: 3, callDepth: 4, moduleBytes: 5, handles: 6}", "priority: 0\nfresh: false",
	}
	for _, text := range texts {
		for _, fromFile := range []bool{true, false} {
			m := Module{Name: strings.Repeat("long", 60), Wasm: []byte("wasm")}
			_, err := m.Options.decodeOptions([]byte(text), "m.yaml")
			require.NoError(t, err)
			if fromFile {
				m.OptionsText = []byte(text)
			}
			l := lastGood{dir: t.TempDir(), marks: map[string]mark{}}
			require.NoError(t, l.keepModule(&m))
			again, err := l.recallModule(m.Name)
			require.NoError(t, err)
			if !reflect.DeepEqual(again.Options, m.Options) || again.computeDigest() != m.computeDigest() || string(again.Wasm) != string(m.Wasm) {
				t.Errorf("%q: %+v came back as %+v", text, m.Options, again.Options)
			}
		}
	}
}

// TestSameFileSeesEveryChange checks that sameFile recognizes a change after which a file has the same size, inode and
// modification time as before.
func TestSameFileSeesEveryChange(t *testing.T) {
	file, long := filepath.Join(t.TempDir(), "m"), time.Now().Add(-time.Hour)
	write := func(content string) os.FileInfo {
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		require.NoError(t, os.Chtimes(file, long, long))
		return statFile(file)
	}
	was := write("one")
	if !sameFile(was, statFile(file)) {
		t.Error("a file that nobody touched looks different")
	}
	require.Eventually(t, func() bool { return !sameFile(was, write("two")) }, time.Minute, time.Millisecond, "a change is not seen")
}
