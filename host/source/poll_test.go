// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/internal/wattest"
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

// TestUnchangedFilesAreNotReadAgain: a poll that finds nothing new opens nothing. What tells is that the content may be gone
// while size and time stay.
func TestUnchangedFilesAreNotReadAgain(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "m.wasm")
	long := time.Now().Add(-time.Hour)
	write := func(content []byte) {
		t.Helper()
		f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		_, err = f.Write(content)
		if closeErr := f.Close(); err != nil || closeErr != nil {
			t.Fatal(err, closeErr)
		}
		require.NoError(t, os.Chtimes(file, long, long))
	}
	wasm := module(t, "")
	write(wasm)
	d, err := NewDir(DirConfig{Path: dir, Chains: newChains(t, "")})
	require.NoError(t, err)
	defer d.close()
	running := func() bool {
		t.Helper()
		require.NoError(t, d.Sync(t.Context()))
		return d.statuses[0].State == Loaded
	}
	if !running() {
		t.Fatal(d.statuses)
	}
	write(make([]byte, len(wasm)))
	if !running() {
		t.Error("it was read although it looks as it did")
	}
	long = long.Add(time.Second)
	write(make([]byte, len(wasm)))
	if running() {
		t.Error("it was not read although its time is another")
	}
}

// TestRefusedIsNotCompiledAgain: whatever the reason was.
func TestRefusedIsNotCompiledAgain(t *testing.T) {
	c := newChains(t, "")
	for name, m := range map[string]Module{
		"corrupt": {Name: "m", Wasm: []byte("nonsense")},
		"kinds":   {Name: "m", Wasm: module(t, ""), Options: Options{Kinds: []string{"Pod"}, Writes: []string{"["}}},
	} {
		first := c.Apply(t.Context(), []Module{m})[0].Err
		again := c.Apply(t.Context(), []Module{m})[0].Err
		if first == nil || first != again { // the very same value: nobody tried
			t.Errorf("%s: %v, then %v", name, first, again)
		}
	}
}

// TestNoLockWhileCompiling: kinds come and go while a module takes its time to load.
func TestNoLockWhileCompiling(t *testing.T) {
	c := newChains(t, "")
	slow := module(t, `(loop $l (br $l))`) // until its fuel is gone
	m := Module{Name: "slow", Wasm: slow, Options: Options{Limits: Limits{Fuel: 2_000_000_000}}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Apply(context.Background(), []Module{m})
	}()
	for c.applying.TryLock() { // until it is at work
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
