// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package compiler compiles modules to machine code, and keeps the code in a folder so that a known module loads in
// milliseconds.
//
// The functions that modules may import are the caller's: Instantiate adds them to each runtime. A module's start
// section becomes the export StartExport, which the caller must call after instantiation.
package compiler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/tetratelabs/wazero"
)

// Compiler compiles modules. It is safe for concurrent use.
type Compiler struct {
	instantiate Instantiate
	cache       *codeCache // nil if no cache folder is configured

	mu sync.Mutex
	// runtime runs modules that are compiled without the cache. It is created when it is first needed.
	runtime wazero.Runtime
}

// Instantiate adds the modules from which plugins import functions to a runtime.
type Instantiate func(ctx context.Context, r wazero.Runtime) error

// New returns a Compiler with a cache in the folder dir, or without a cache if dir is empty. The caller must close it.
func New(ctx context.Context, dir string, logger *slog.Logger, instantiate Instantiate) (*Compiler, error) {
	c := &Compiler{instantiate: instantiate}
	if dir == "" {
		_, err := c.uncachedRuntime(ctx)
		return c, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("finding the folder of compiled plugins, %w", err)
	}
	c.cache = &codeCache{dir: dir, logger: logger, instantiate: instantiate}
	return c, nil
}

func runtimeConfig() wazero.RuntimeConfig {
	return wazero.NewRuntimeConfigCompiler().WithDebugInfoEnabled(false)
}

// uncachedRuntime returns the runtime that compiles only to memory.
func (c *Compiler) uncachedRuntime(ctx context.Context) (wazero.Runtime, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runtime != nil {
		return c.runtime, nil
	}
	r := wazero.NewRuntimeWithConfig(ctx, runtimeConfig())
	if err := c.instantiate(ctx, r); err != nil {
		return nil, errors.Join(fmt.Errorf("instantiating the host modules, %w", err), r.Close(ctx))
	}
	c.runtime = r
	return r, nil
}

// Compile returns the compiled module and its runtime. An error is caused by the module or the machine (see
// host.IsTransient), never by the cache.
func (c *Compiler) Compile(ctx context.Context, wasm []byte) (wazero.CompiledModule, wazero.Runtime, error) {
	wasm = exportStart(wasm)
	var cacheErr error
	if c.cache != nil {
		compiled, r, err := c.cache.compileCached(ctx, wasm)
		if err == nil {
			return compiled, r, nil
		}
		cacheErr = err
	}
	r, err := c.uncachedRuntime(ctx)
	if err != nil {
		return nil, nil, err
	}
	compiled, err := compileIn(ctx, r, wasm)
	if err == nil && cacheErr != nil {
		c.cache.pauseCache(cacheErr)
	}
	return compiled, r, err
}

// compileIn compiles a module. It returns a panic of the compiler as an error, because the bytes come from an unknown
// source.
func compileIn(ctx context.Context, r wazero.Runtime, wasm []byte) (_ wazero.CompiledModule, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = NewPanicError("compiler", cause)
		}
	}()
	return r.CompileModule(ctx, wasm)
}

// CacheFailures returns how often the cache folder could not be used.
func (c *Compiler) CacheFailures() int64 {
	if c.cache == nil {
		return 0
	}
	return c.cache.failures.Load()
}

// Close closes the runtimes and their modules. No calls may be in progress.
func (c *Compiler) Close(ctx context.Context) error {
	var err error
	if c.runtime != nil {
		err = c.runtime.Close(ctx)
	}
	if c.cache != nil {
		err = errors.Join(err, c.cache.closeCache(ctx))
	}
	return err
}

// PanicError is a panic in wazero, for example because the address space is exhausted.
type PanicError struct {
	of    string
	cause error
}

// NewPanicError returns the error for a recovered panic in a part of wazero.
func NewPanicError(of string, cause any) *PanicError {
	err, ok := cause.(error)
	if !ok {
		err = fmt.Errorf("%v", cause)
	}
	return &PanicError{of, err}
}

func (e *PanicError) Error() string { return "the " + e.of + " panicked: " + e.cause.Error() }

func (e *PanicError) Unwrap() error { return e.cause }
