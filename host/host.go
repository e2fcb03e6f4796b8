// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/refract-project/refract/host/internal/compiler"
	"github.com/refract-project/refract/host/internal/guest"
)

// Host compiles and runs plugins. It is safe for concurrent use.
type Host struct {
	config   Config
	logger   *slog.Logger
	timeout  time.Duration // timeout of a chain
	imports  guest.Imports
	compiler *compiler.Compiler
}

// defaultCallTimeout limits the time of a chain in addition to fuel. With a shorter time, calls fail on an overloaded
// machine. With a longer time, a slow plugin blocks a worker for longer.
const defaultCallTimeout = 5 * time.Second

// New returns a Host with the configuration. The caller must close the Host.
func New(ctx context.Context, c Config) (*Host, error) {
	h := &Host{config: c, logger: c.logger, timeout: cmp.Or(c.timeout, defaultCallTimeout), imports: guest.NewImports()}
	if h.logger == nil {
		h.logger = slog.Default()
	}
	var err error
	h.compiler, err = compiler.New(ctx, c.cacheDir, h.logger, h.imports.Instantiate)
	return h, err
}

// CacheFailures returns how often the directory from Config.WithCacheDir could not be used.
func (h *Host) CacheFailures() int64 { return h.compiler.CacheFailures() }

// Close closes the runtimes and their plugins. No calls may be in progress.
func (h *Host) Close(ctx context.Context) error { return h.compiler.Close(ctx) }
