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

// Host compiles and runs plugins. Safe for concurrent use.
type Host struct {
	config  Config
	logger  *slog.Logger
	timeout time.Duration // of a chain
	imports imports
	cache   *codeCache // nil without a folder for it

	mu      sync.Mutex
	runtime wazero.Runtime // of the modules that are not compiled with the cache; made when first needed
}

// New starts a host, which must be closed.
func New(ctx context.Context, c Config) (*Host, error) {
	h := &Host{config: c, logger: c.logger, timeout: cmp.Or(c.timeout, 5*time.Second), imports: hostImports()}
	if h.logger == nil {
		h.logger = slog.Default()
	}
	if c.cacheDir == "" {
		_, err := h.uncached(ctx)
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

// uncached returns the runtime that compiles in memory alone.
func (h *Host) uncached(ctx context.Context) (wazero.Runtime, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runtime != nil {
		return h.runtime, nil
	}
	r := wazero.NewRuntimeWithConfig(ctx, runtimeConfig())
	if err := h.imports.instantiate(ctx, r); err != nil {
		return nil, errors.Join(fmt.Errorf("instantiating the host modules, %w", err), r.Close(ctx))
	}
	h.runtime = r
	return r, nil
}

// compile returns the module and the runtime that it belongs to. The cause of an error is the module, or the
// machine (see IsTransient), never the cache.
func (h *Host) compile(ctx context.Context, wasm []byte) (wazero.CompiledModule, wazero.Runtime, error) {
	var cacheErr error
	if h.cache != nil {
		compiled, r, err := h.cache.compile(ctx, wasm)
		if err == nil {
			return compiled, r, nil
		}
		cacheErr = err
	}
	r, err := h.uncached(ctx)
	if err != nil {
		return nil, nil, err
	}
	compiled, err := compileIn(ctx, r, wasm)
	if err == nil && cacheErr != nil {
		h.cache.fail(cacheErr)
	}
	return compiled, r, err
}

// compileIn keeps a panic of the compiler, which reads bytes of unknown origin, from spreading.
func compileIn(ctx context.Context, r wazero.Runtime, wasm []byte) (_ wazero.CompiledModule, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = panicError("compiler", cause)
		}
	}()
	return r.CompileModule(ctx, wasm)
}

// CacheFailures returns how often the folder of Config.WithCacheDir could not be used as it was.
func (h *Host) CacheFailures() int64 {
	if h.cache == nil {
		return 0
	}
	return h.cache.failures.Load()
}

// Close closes the runtimes and their plugins. No call may be running.
func (h *Host) Close(ctx context.Context) error {
	var err error
	if h.runtime != nil {
		err = h.runtime.Close(ctx)
	}
	if h.cache != nil {
		err = errors.Join(err, h.cache.close(ctx))
	}
	return err
}

// memory is the linear memory of one instance. It knows when the module was refused more, which a trap alone does not
// tell.
type memory struct {
	bytes   []byte
	max     uint64
	started bool
	refused bool
}

// Allocate implements experimental.MemoryAllocator.
func (m *memory) Allocate(uint64, uint64) experimental.LinearMemory { return m }

// Reallocate implements experimental.LinearMemory. Its first call is for the initial size, where wazero takes no refusal:
// the panic is caught by the instantiation.
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
		// At least double, so that growing page by page does not copy each time.
		grown := make([]byte, size, min(max(size, 2*uint64(cap(m.bytes))), m.max))
		copy(grown, m.bytes)
		m.bytes = grown
	}
	m.bytes = m.bytes[:size]
	return m.bytes
}

// Free implements experimental.LinearMemory.
func (m *memory) Free() { m.bytes = nil }
