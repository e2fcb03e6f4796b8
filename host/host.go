// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
)

// Host compiles and runs plugins in one wazero runtime. Safe for concurrent use.
type Host struct {
	config  Config
	logger  *slog.Logger
	timeout time.Duration // of a chain
	runtime wazero.Runtime
	cache   wazero.CompilationCache
	imports imports
}

// New starts a host, which must be closed.
func New(ctx context.Context, c Config) (*Host, error) {
	h := &Host{config: c, logger: c.logger, timeout: cmp.Or(c.timeout, 5*time.Second), imports: hostImports()}
	if h.logger == nil {
		h.logger = slog.Default()
	}
	rc := wazero.NewRuntimeConfigCompiler().WithDebugInfoEnabled(false)
	if c.cacheDir != "" {
		if err := h.openCache(); err != nil {
			return nil, err
		}
		rc = rc.WithCompilationCache(h.cache)
	}
	h.runtime = wazero.NewRuntimeWithConfig(ctx, rc)
	if err := h.imports.instantiate(ctx, h.runtime); err != nil {
		return nil, fmt.Errorf("instantiating the host modules, %w", err)
	}
	return h, nil
}

func (h *Host) openCache() error {
	if err := os.MkdirAll(h.config.cacheDir, 0o700); err != nil {
		return fmt.Errorf("making the compilation cache directory, %w", err)
	}
	cache, err := wazero.NewCompilationCacheWithDir(h.config.cacheDir)
	if err != nil {
		return fmt.Errorf("opening the compilation cache in %s, %w", h.config.cacheDir, err)
	}
	h.cache = cache
	return nil
}

// Close closes the runtime and its plugins. No call may be running.
func (h *Host) Close(ctx context.Context) error {
	err := h.runtime.Close(ctx)
	if h.cache != nil {
		if cacheErr := h.cache.Close(ctx); err == nil {
			err = cacheErr
		}
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
