// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
)

// Host compiles and runs plugins. It is safe for concurrent use.
type Host struct {
	config  Config
	logger  *slog.Logger
	timeout time.Duration // timeout of a chain
	imports imports
	cache   *codeCache // nil if no cache directory is configured

	mu sync.Mutex
	// runtime runs modules that are compiled without the cache. It is created when it is first needed.
	runtime wazero.Runtime
}

// defaultCallTimeout limits the time of a chain in addition to fuel. With a shorter time, calls fail on an overloaded
// machine. With a longer time, a slow plugin blocks a worker for longer.
const defaultCallTimeout = 5 * time.Second

// New returns a Host with the configuration. The caller must close the Host.
func New(ctx context.Context, c Config) (*Host, error) {
	h := &Host{config: c, logger: c.logger, timeout: cmp.Or(c.timeout, defaultCallTimeout), imports: hostImports()}
	if h.logger == nil {
		h.logger = slog.Default()
	}
	if c.cacheDir == "" {
		_, err := h.uncachedRuntime(ctx)
		return h, err
	}
	dir, err := filepath.Abs(c.cacheDir)
	if err != nil {
		return nil, fmt.Errorf("finding the folder of compiled plugins, %w", err)
	}
	h.cache = &codeCache{dir: dir, logger: h.logger, imports: h.imports}
	return h, nil
}

func runtimeConfig() wazero.RuntimeConfig {
	return wazero.NewRuntimeConfigCompiler().WithDebugInfoEnabled(false)
}

// uncachedRuntime returns the runtime that compiles only to memory.
func (h *Host) uncachedRuntime(ctx context.Context) (wazero.Runtime, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runtime != nil {
		return h.runtime, nil
	}
	r := wazero.NewRuntimeWithConfig(ctx, runtimeConfig())
	if err := h.imports.instantiateModules(ctx, r); err != nil {
		return nil, errors.Join(fmt.Errorf("instantiating the host modules, %w", err), r.Close(ctx))
	}
	h.runtime = r
	return r, nil
}

// compileModule returns the compiled module and its runtime. An error is caused by the module or the machine (see
// IsTransient), never by the cache.
func (h *Host) compileModule(ctx context.Context, wasm []byte) (wazero.CompiledModule, wazero.Runtime, error) {
	var cacheErr error
	if h.cache != nil {
		compiled, r, err := h.cache.compileCached(ctx, wasm)
		if err == nil {
			return compiled, r, nil
		}
		cacheErr = err
	}
	r, err := h.uncachedRuntime(ctx)
	if err != nil {
		return nil, nil, err
	}
	compiled, err := compileIn(ctx, r, wasm)
	if err == nil && cacheErr != nil {
		h.cache.pauseCache(cacheErr)
	}
	return compiled, r, err
}

// compileIn compiles a module. It returns a panic of the compiler as an error, because the bytes come from an unknown
// source.
func compileIn(ctx context.Context, r wazero.Runtime, wasm []byte) (_ wazero.CompiledModule, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = panicError("compiler", cause)
		}
	}()
	return r.CompileModule(ctx, wasm)
}

// CacheFailures returns how often the directory from Config.WithCacheDir could not be used.
func (h *Host) CacheFailures() int64 {
	if h.cache == nil {
		return 0
	}
	return h.cache.failures.Load()
}

// Close closes the runtimes and their plugins. No calls may be in progress.
func (h *Host) Close(ctx context.Context) error {
	var err error
	if h.runtime != nil {
		err = h.runtime.Close(ctx)
	}
	if h.cache != nil {
		err = errors.Join(err, h.cache.closeCache(ctx))
	}
	return err
}

// memory is the linear memory of an instance. It records that growth was refused, because the trap that follows does
// not show this.
type memory struct {
	bytes   []byte
	max     uint64
	started bool
	refused bool
}

// Allocate implements experimental.MemoryAllocator.
func (m *memory) Allocate(uint64, uint64) experimental.LinearMemory { return m }

// Reallocate implements experimental.LinearMemory. It returns nil to refuse growth. The first call, for the initial
// size, must not return nil, because wazero does not support this. If the initial size is too large, Reallocate panics,
// and newInstance recovers.
func (m *memory) Reallocate(size uint64) []byte {
	if size > m.max {
		m.refused = true
		if !m.started {
			panic(errMemoryRefused)
		}
		return nil
	}
	m.started = true
	if size > uint64(cap(m.bytes)) {
		// The capacity is at least doubled, so that growth by single pages does not copy the memory each time.
		grown := make([]byte, size, min(max(size, 2*uint64(cap(m.bytes))), m.max))
		copy(grown, m.bytes)
		m.bytes = grown
	}
	m.bytes = m.bytes[:size]
	return m.bytes
}

// Free implements experimental.LinearMemory.
func (m *memory) Free() { m.bytes = nil }
