// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/refract-project/refract/host/document"
)

func TestRegistry(t *testing.T) {
	h := newHost(t)
	r := NewRegistry(nil)
	identity := r.Chain("Thing", Outgoing)
	if identity == nil || len(identity.Plugins()) != 0 || r.Chain("Thing", Outgoing) != identity {
		t.Fatal("no identity chain")
	}
	var told []string
	cancel := r.Subscribe(func(kind string, hook Hook, generation uint64) {
		told = append(told, fmt.Sprintf("%s %s %d", kind, hook, generation))
	})
	p := mustLoad(t, h, "p", assembleGuest("p", `"*"`, returnZero, set("spec.x", "1")), PluginConfig{})
	chain, err := NewChain(Outgoing, DefaultGuard("Thing"), p)
	require.NoError(t, err)
	if previous := r.Swap("Thing", Outgoing, chain); previous != identity {
		t.Error("the previous chain is not the identity")
	}
	doc, env, ctx := document.New(), &Env{}, context.Background()
	doc.Reset(map[string]any{})
	if _, err := r.Run(ctx, "Thing", Outgoing, doc, env); err != nil || !doc.Edited() {
		t.Errorf("the chain did not run: %v", err)
	}
	if c := r.Chain("Thing", Outgoing); c.Generation() != 1 || r.Generation() != 1 {
		t.Errorf("generation %d of %d", c.Generation(), r.Generation())
	}
	r.Swap("Thing", Outgoing, nil)
	cancel()
	r.Swap("Thing", Incoming, nil)
	if want := []string{"Thing outgoing 1", "Thing outgoing 2"}; !reflect.DeepEqual(told, want) {
		t.Errorf("told %v", told)
	}
	doc.Reset(map[string]any{})
	if _, err := r.Run(ctx, "Thing", Outgoing, doc, env); err != nil || doc.Edited() {
		t.Errorf("the identity edits: %v", err)
	}
}

func TestClosedPlugin(t *testing.T) {
	ctx := context.Background()
	p := mustLoad(t, newHost(t), "p", noop, PluginConfig{})
	for range 2 {
		require.NoError(t, p.Close(ctx))
	}
	var closed *ClosedError
	if _, err := runOnce(t, p, serviceObject()); !errors.As(err, &closed) || closed.Plugin != "p" {
		t.Errorf("%v", err)
	}
	r := NewRegistry(nil)
	chain, err := NewChain(Outgoing, Guard{}, p)
	require.NoError(t, err)
	r.Swap("Thing", Outgoing, chain)
	doc := document.New()
	doc.Reset(serviceObject())
	if _, err := r.Run(ctx, "Thing", Outgoing, doc, &Env{}); !errors.As(err, &closed) {
		t.Errorf("with nothing newer: %v", err)
	}
}

// blocking returns a plugin whose hook waits in remap_ip until the test releases it.
func blocking(t *testing.T, h *Host) (p *Plugin, env *Env, entered, release chan struct{}) {
	entered, release = make(chan struct{}), make(chan struct{})
	p = mustLoad(t, h, "blocks", assembleGuest("blocks", `"*"`, returnZero, step{"remap_ip", []any{"10.0.0.1", 0, 0}}), PluginConfig{})
	env = &Env{RemapIP: func(string) (string, bool) {
		close(entered)
		<-release
		return "", false
	}}
	return p, env, entered, release
}

func TestCloseWaitsForRunningCalls(t *testing.T) {
	p, env, entered, release := blocking(t, newHost(t))
	chain, err := NewChain(Outgoing, Guard{}, p)
	require.NoError(t, err)
	ran := make(chan error, 1)
	go func() {
		doc := document.New()
		doc.Reset(serviceObject())
		_, err := chain.Run(context.Background(), doc, env)
		ran <- err
	}()
	<-entered
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close did not wait: %v", err)
	}
	close(release)
	assert.NoError(t, <-ran, "the running call")
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live != 0 {
		t.Errorf("%d instances are left", p.live)
	}
}

// TestTrappedInstanceIsNotReused checks that an instance is not reused after a trap. To show this, the guest traps
// differently if its memory was used before.
func TestTrappedInstanceIsNotReused(t *testing.T) {
	m := newModule().plugin(noopManifest)
	m.function("incoming", nil, []byte{i32}, returnZero)
	// if (mem[0]) unreachable; mem[0] = 1; unreachable
	trap := []byte{0x41, 0, 0x28, 2, 0, 0x04, 0x40, 0x41, 0, 0x41, 0, 0x6d, 0x1a, 0x0b, 0x41, 0, 0x41, 1, 0x36, 2, 0, 0x00}
	m.function("outgoing", nil, []byte{i32}, trap)
	p := mustLoad(t, newHost(t), "p", m.bytes(), PluginConfig{})
	for range 3 {
		_, err := runOnce(t, p, serviceObject())
		var e *TrapError
		// The trap must be "unreachable". A reused instance would divide by zero.
		if !errors.As(err, &e) || !errors.Is(err, e) || !containsUnreachable(err) {
			t.Fatalf("%v", err)
		}
	}
}

func containsUnreachable(err error) bool {
	var e *TrapError
	return errors.As(err, &e) && e.Err != nil && len(e.Err.Error()) > 0 && e.Err.Error()[:len("wasm error: unreachable")] == "wasm error: unreachable"
}

// TestHammer checks that if many workers run objects of one cache through one registry while chains are swapped and
// their plugins are closed, every result comes from one generation, no cached object changes, and no errors occur.
func TestHammer(t *testing.T) {
	h := newHost(t)
	r := NewRegistry(func(string, Hook) Guard { return Guard{} })
	ctx := context.Background()
	build := func(n int) (*Chain, []*Plugin) {
		tag := strconv.Itoa(n)
		var list []*Plugin
		for _, name := range []string{"a", "b"} {
			list = append(list, mustLoad(t, h, name, assembleGuest(name, `"spec"`, returnZero, set("spec."+name, tag), remove("spec.ports.*.nodePort")), PluginConfig{}))
		}
		chain, err := NewChain(Outgoing, Guard{}, list...)
		require.NoError(t, err)
		return chain, list
	}
	chain, list := build(0)
	r.Swap("Service", Outgoing, chain)
	cache := serviceObject()
	var runs atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 8 {
		wg.Go(func() {
			doc, env := document.New(), &Env{}
			for {
				select {
				case <-stop:
					return
				default:
				}
				doc.Reset(cache)
				if _, err := r.Run(ctx, "Service", Outgoing, doc, env); err != nil {
					t.Error(err)
					return
				}
				spec := doc.Value()["spec"].(map[string]any)
				if spec["a"] != spec["b"] || spec["a"] == nil {
					t.Errorf("two generations in one result: %v, %v", spec["a"], spec["b"])
					return
				}
				runs.Add(1)
			}
		})
	}
	for n := 1; n <= 25; n++ {
		next, nextList := build(n)
		r.Swap("Service", Outgoing, next)
		for _, p := range list {
			assert.NoError(t, p.Close(ctx))
			if p.live != 0 {
				t.Errorf("%d instances of a closed plugin", p.live)
			}
		}
		list = nextList
	}
	deadline := time.Now().Add(3 * time.Minute)
	for before := runs.Load(); runs.Load() < before+100 && !t.Failed(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("%d runs in 3 minutes after the last swap, want 100", runs.Load()-before)
		}
	}
	close(stop)
	wg.Wait()
	if !reflect.DeepEqual(cache, serviceObject()) {
		t.Error("the object in the cache changed")
	}
}

func TestPoolKeepsFewInstances(t *testing.T) {
	p := mustLoad(t, newHost(t), "p", noop, PluginConfig{})
	var taken []*instance
	for range 3 * maxIdle() {
		i, err := p.takeInstance(context.Background(), "")
		require.NoError(t, err)
		taken = append(taken, i)
	}
	for _, i := range taken {
		p.releaseInstance(i)
	}
	if want := maxIdle() + 1; p.live != want {
		t.Errorf("%d instances wait, want %d", p.live, want)
	}
}
