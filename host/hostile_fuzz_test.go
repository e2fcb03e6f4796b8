// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"context"
	"math/rand/v2"
	"os"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
)

// realModule returns the module of a default plugin, compiled by TinyGo.
func realModule(t testing.TB) []byte {
	t.Helper()
	wasm, err := os.ReadFile("../plugins/service/service.wasm")
	require.NoError(t, err)
	return wasm
}

// damaged contains low limits for damaged modules that can still be loaded.
var damaged = host.PluginConfig{Limits: host.Limits{Fuel: 1_000_000, MemoryPages: 64}}

// slowestLoad is the maximum time of a load: ten times the longest time that the limits should permit.
const slowestLoad = 20 * time.Second

// largestLoad returns how many bytes a load may allocate in total: sixteen times the allocations of a default plugin,
// and an amount for each byte of the module.
func largestLoad(wasm []byte) uint64 { return 128<<20 + 2048*uint64(len(wasm)) }

// allocated returns how many bytes this process has allocated in total.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// tryModule loads bytes from any source. An error must be of a type of this package. If the module can be loaded, it
// must mutate an object completely or not at all.
func tryModule(t *testing.T, h *host.Host, wasm []byte) {
	t.Helper()
	ctx := context.Background()
	begun, before := time.Now(), allocated()
	p, err := h.Load(ctx, "bad", wasm, damaged)
	if took := allocated() - before; took > largestLoad(wasm) {
		t.Fatalf("loading %d bytes allocated %d MiB", len(wasm), took>>20)
	}
	if err != nil && len(err.Error()) > 4096 {
		t.Fatalf("loading %d bytes gave an error of %d", len(wasm), len(err.Error()))
	}
	// The limit is high, because the time of a load is bounded for every input, but depends on the machine and on
	// other work on it.
	if took := time.Since(begun); took > slowestLoad {
		t.Fatalf("loading %d bytes took %v", len(wasm), took)
	}
	if err != nil {
		if !as[*host.LoadError](err) {
			t.Fatalf("got %T (%v), want a LoadError", err, err)
		}
		return
	}
	defer func() { _ = p.Close(ctx) }()
	chain, err := host.NewChain(host.Outgoing, host.DefaultGuard("Service"), p)
	if err != nil {
		// No object can be mutated: a chain cannot be built, because the manifest has malformed paths.
		return
	}
	doc := document.New()
	doc.Reset(object("Service"))
	if _, err := chain.Run(ctx, doc, &host.Env{Context: hostileContext}); err != nil {
		typed := false
		for _, f := range is {
			typed = typed || f(err)
		}
		if !typed || doc.Edited() {
			t.Fatalf("running it: %T (%v), edited %t", err, err, doc.Edited())
		}
	}
}

func TestTruncatedModules(t *testing.T) {
	a, wasm := newArena(t), realModule(t)
	for n := 0; n < len(wasm); n += 1 + n/20 {
		_, err := a.host.Load(context.Background(), "bad", wasm[:n], host.PluginConfig{})
		if !as[*host.LoadError](err) {
			t.Errorf("%d bytes: got %v, want a LoadError", n, err)
		}
	}
	a.survives(t)
}

func TestRandomModules(t *testing.T) {
	a, wasm := newArena(t), realModule(t)
	random := rand.New(rand.NewPCG(1, 2))
	// These modules are random bytes, without and with a valid header.
	for range 100 {
		noise := make([]byte, random.IntN(2000))
		for i := range noise {
			noise[i] = byte(random.Uint32())
		}
		tryModule(t, a.host, noise)
		tryModule(t, a.host, append([]byte("\x00asm\x01\x00\x00\x00"), noise...))
	}
	// These modules are a real module in which some bytes were changed.
	for range 60 {
		flipped := append([]byte{}, wasm...)
		for range 1 + random.IntN(8) {
			flipped[random.IntN(len(flipped))] = byte(random.Uint32())
		}
		tryModule(t, a.host, flipped)
	}
	a.survives(t)
}

// FuzzLoad checks generated modules with tryModule. The seeds are the guests of the hostile suite.
func FuzzLoad(f *testing.F) {
	for _, dir := range []string{"load", "run"} {
		for _, g := range readGuests(f, dir) {
			f.Add(g.assemble(f))
		}
	}
	// These modules take long to compile. Only a few of them are used, because the fuzzer gives up after 10 s.
	for _, n := range []int{100, 1_000} {
		for _, wasm := range host.Costly(n) {
			f.Add(wasm)
		}
	}
	f.Add([]byte{})
	f.Add([]byte("\x00asm\x01\x00\x00\x00"))
	h, err := host.New(context.Background(), host.NewConfig())
	require.NoError(f, err)
	f.Cleanup(func() { _ = h.Close(context.Background()) })
	f.Fuzz(func(t *testing.T, wasm []byte) { tryModule(t, h, wasm) })
}
