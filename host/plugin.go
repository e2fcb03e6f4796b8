// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"

	"github.com/refract-project/refract/host/internal/guest"
)

// Plugin is a loaded module with its configuration and a pool of instances. It is safe for concurrent use.
type Plugin struct {
	host         *Host
	module       *guest.Module
	digest       string
	manifest     *Manifest
	writes       []string // restricts the manifest's writes, unless nil
	capabilities []string // restricts the manifest's capabilities, unless nil
	warnings     []string // warnings about declarations and configuration that have no effect
	declared     Manifest // manifest from the options, for a module without one
	ignore       bool
	fresh        bool

	// hot is the instance that the next call uses without locking, unless the instance is busy. It stays the same until
	// it is discarded or replaced.
	hot    atomic.Pointer[instance]
	closed atomic.Bool

	leaks  atomic.Int64 // number of calls that succeeded only in a fresh instance
	leaked rate.Sometimes

	mu       sync.Mutex
	idle     []*instance
	live     int           // number of instances, including running ones
	drained  chan struct{} // closed when live becomes 0 after Close
	closeErr error
}

// instance is an instance of the plugin's module with what the pool knows about it.
type instance struct {
	*guest.Instance
	// busy is 1 while a call, or the pool under its lock, owns the instance. Only the hot instance needs it.
	busy     atomic.Uint32
	domain   string // domain of the last call; see Env.Domain
	ran      bool   // code of the module has run since the last reset
	inherits bool   // the instance has state from an earlier call
}

func (p *Plugin) newInstance(ctx context.Context) (*instance, error) {
	i, err := p.module.NewInstance(ctx)
	if err != nil {
		return nil, err
	}
	return &instance{Instance: i}, nil
}

// putBack resets the instance to its initial state. It returns false if this is not possible; see guest.Instance.Reset.
func (i *instance) putBack() bool {
	if !i.Reset() {
		return false
	}
	i.ran = false
	return true
}

// maxIdle returns the maximum number of idle instances. If more calls run concurrently, further instances are
// created, and are discarded after their calls.
func maxIdle() int { return 2 * runtime.GOMAXPROCS(0) }

// Name returns the name under which the plugin was loaded.
func (p *Plugin) Name() string { return p.module.Name }

// Version returns the version in the manifest.
func (p *Plugin) Version() string { return p.manifest.Version }

// Manifest returns the manifest of the module. Callers must not modify it.
func (p *Plugin) Manifest() *Manifest { return p.manifest }

// Warnings returns warnings for users about parts of the manifest and of the PluginConfig that have no effect.
func (p *Plugin) Warnings() []string { return p.warnings }

// Leaks returns how many calls have failed in an instance that had run before, and succeeded in a fresh instance.
func (p *Plugin) Leaks() int64 { return p.leaks.Load() }

// reportLeak reports a call that succeeded only in a fresh instance. The cause is that the plugin fills its memory
// over time, or keeps other state that makes it fail.
func (p *Plugin) reportLeak(err error) {
	p.leaks.Add(1)
	p.leaked.Do(func() {
		p.host.logger.Warn("A plugin failed in an instance that had run before and succeeded in a fresh one: it keeps memory or other state from call to call; `fresh: true` in its options resets it before each call",
			"plugin", p.Name(), "version", p.Version(), "leaks", p.leaks.Load(), "err", err)
		if p.host.config.onLeak != nil {
			p.host.config.onLeak(p.Name(), err)
		}
	})
}

// Digest returns the digest, "sha256:<hex>", of the module that was passed to Load.
func (p *Plugin) Digest() string { return p.digest }

// Portable reports whether the module belongs to the portable tier, in which input and output are JSON.
func (p *Plugin) Portable() bool { return p.module.Portable }

// takeInstance returns an instance for one call of a domain. After the call, the caller must pass the instance to
// releaseInstance or discardInstance.
func (p *Plugin) takeInstance(ctx context.Context, domain string) (*instance, error) {
	i, err := p.pooledInstance(ctx)
	if err != nil {
		return nil, err
	}
	if i.ran && (p.fresh || domain == "" || i.domain != domain) && !i.putBack() {
		fresh, err := p.newInstance(ctx)
		if err != nil {
			p.discardInstance(i)
			return nil, err
		}
		p.replaceInstance(i, fresh)
		i = fresh
	}
	i.inherits = i.ran
	i.domain, i.ran = domain, true
	return i, nil
}

// takeFreshInstance replaces the caller's instance with one in the initial state. If the old instance is intact, it is
// reset; otherwise it is discarded.
func (p *Plugin) takeFreshInstance(ctx context.Context, old *instance, isIntact bool) (*instance, error) {
	i, domain := old, old.domain
	if !isIntact || !old.putBack() {
		fresh, err := p.newInstance(ctx)
		if err != nil {
			return nil, err
		}
		p.replaceInstance(old, fresh)
		i = fresh
	}
	i.domain, i.ran, i.inherits = domain, true, false
	return i, nil
}

// replaceInstance closes the caller's instance and replaces it with a new one.
func (p *Plugin) replaceInstance(old, fresh *instance) {
	fresh.busy.Store(1)
	p.hot.CompareAndSwap(old, fresh)
	old.Close()
}

// pooledInstance returns the hot instance, or the result of acquireInstance if the hot instance is busy.
func (p *Plugin) pooledInstance(ctx context.Context) (*instance, error) {
	if i := p.hot.Load(); i != nil && i.busy.CompareAndSwap(0, 1) {
		return i, nil
	}
	return p.acquireInstance(ctx)
}

// acquireInstance returns an idle instance, or creates an instance if none is idle.
func (p *Plugin) acquireInstance(ctx context.Context) (*instance, error) {
	p.mu.Lock()
	if p.closed.Load() {
		p.mu.Unlock()
		return nil, &ClosedError{Plugin: p.Name()}
	}
	if n := len(p.idle); n > 0 {
		i := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return i, nil
	}
	p.live++
	p.mu.Unlock()
	i, err := p.newInstance(ctx)
	if err != nil {
		p.countEnded()
		return nil, err
	}
	i.busy.Store(1)
	return i, nil
}

// releaseInstance returns an instance to the pool, or discards it if the pool is full.
func (p *Plugin) releaseInstance(i *instance) {
	if p.hot.Load() == i {
		i.busy.Store(0)
	} else if !p.parkInstance(i) {
		p.discardInstance(i)
	}
	// The pool is emptied again, because Close may have emptied it before the instance was parked.
	if p.closed.Load() {
		p.endIdleInstances()
	}
}

// parkInstance makes an instance the hot instance, or keeps it as an idle one. It returns false if the pool is full.
func (p *Plugin) parkInstance(i *instance) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hot.Load() == nil {
		i.busy.Store(0)
		p.hot.Store(i)
		return true
	}
	if len(p.idle) >= maxIdle() {
		return false
	}
	p.idle = append(p.idle, i)
	return true
}

// discardInstance closes an instance that is not used again.
func (p *Plugin) discardInstance(i *instance) {
	p.hot.CompareAndSwap(i, nil)
	i.Close()
	p.countEnded()
}

// countEnded records that an instance has ended.
func (p *Plugin) countEnded() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.live--
	p.freeWhenDrained()
}

// freeWhenDrained frees the code and signals Close if no instances are left. p.mu must be held.
func (p *Plugin) freeWhenDrained() {
	if p.live == 0 && p.drained != nil {
		p.closeErr = p.module.Compiled.Close(context.Background())
		close(p.drained)
		p.drained = nil
	}
}

// endIdleInstances discards all idle instances.
func (p *Plugin) endIdleInstances() {
	if i := p.hot.Load(); i != nil && i.busy.CompareAndSwap(0, 1) {
		p.discardInstance(i)
	}
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, i := range idle {
		p.discardInstance(i)
	}
}

// Close makes new calls fail with a ClosedError, waits for running calls, and frees the memory. If ctx is done before
// the last call ends, Close returns the error of ctx, and the memory is freed later. Further calls of Close have no
// effect.
func (p *Plugin) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.closed.Swap(true) {
		p.mu.Unlock()
		return nil
	}
	drained := make(chan struct{})
	p.drained = drained
	p.freeWhenDrained()
	p.mu.Unlock()
	p.endIdleInstances()
	select {
	case <-drained:
		return p.closeErr
	case <-ctx.Done():
		return ctx.Err()
	}
}
