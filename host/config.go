// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"log/slog"
	"time"

	"github.com/refract-project/refract/host/internal/guest"
)

// Config is the configuration of a Host. It is immutable: each method With… returns a changed copy.
type Config struct {
	cacheDir string
	logger   *slog.Logger
	timeout  time.Duration
	onLeak   func(plugin string, err error)
}

// NewConfig returns a configuration without a cache directory, with the logger slog.Default() and with DefaultLimits.
func NewConfig() Config { return Config{} }

// WithCacheDir stores compiled modules in dir, so that a known module loads in milliseconds. The directory is created
// if necessary, may be used by several processes, and grows to at most 256 MiB. If it cannot be used, modules are
// compiled at each load, a warning is logged, and Host.CacheFailures counts the failure.
func (c Config) WithCacheDir(dir string) Config { c.cacheDir = dir; return c }

// WithLogger sets the logger for plugins that are called with an Env without a logger.
func (c Config) WithLogger(l *slog.Logger) Config { c.logger = l; return c }

// WithChainTimeout limits the wall-clock time of a chain. The default is 5 s. Usually a plugin runs out of fuel much
// earlier, and at the same instruction on every machine. The timeout limits work that fuel does not measure well. It
// is checked when a plugin calls the host, between the operations of a JSON Patch, and between plugins.
func (c Config) WithChainTimeout(d time.Duration) Config { c.timeout = d; return c }

// WithLeakReporter sets a function that is called for a plugin that leaks: a call fails in an instance that has run
// before, and succeeds in a fresh one. The function is called for the first such call of a plugin, and then at most
// every ten minutes. It must not block. The Host also logs the error.
func (c Config) WithLeakReporter(report func(plugin string, err error)) Config {
	c.onLeak = report
	return c
}

// leakReportInterval is the minimum time between two reports about the same plugin.
const leakReportInterval = 10 * time.Minute

// Limits are the limits of one plugin. A zero field means the default.
type Limits = guest.Limits

// DefaultLimits returns the values that apply where fields of Limits are zero.
func DefaultLimits() Limits { return guest.DefaultLimits() }

// PluginConfig configures a plugin when it is loaded.
type PluginConfig struct {
	// Config is the configuration for the plugin itself. It has the JSON types of an unstructured object and must not
	// be modified later.
	Config map[string]any
	Limits Limits
	// Writes restricts the paths that the manifest allows: an edit must be at or below a path in both lists. If it is
	// nil, only the manifest counts. If it is empty, the plugin may not write.
	Writes []string
	// Capabilities restricts the capabilities that the manifest requests. If it is nil, only the manifest counts. If
	// it is empty, the plugin has no capabilities.
	Capabilities []string
	// Kinds are the kinds of a module in the portable tier. Such a module has no manifest, so Kinds, Writes and
	// Capabilities replace it.
	Kinds []string
	// Fresh means that the instance is reset to its initial state before each call, even if consecutive calls have
	// the same Env.Domain.
	Fresh bool
	// IgnoreFailure means that the edits of a failed call are dropped, and the chain continues with a warning.
	IgnoreFailure bool

	// unmetered omits the fuel counter. It is for benchmarks only, because without fuel nothing stops an endless
	// loop.
	unmetered bool
}
