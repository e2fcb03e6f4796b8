// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/refract-project/refract/host/fuel"
)

// Config is the configuration of a Host. It is immutable: each WithX returns a changed copy.
type Config struct {
	cacheDir string
	logger   *slog.Logger
	timeout  time.Duration
	onLeak   func(plugin string, err error)
}

// NewConfig returns a configuration without a cache directory, with the logger slog.Default() and with DefaultLimits.
func NewConfig() Config { return Config{} }

// WithCacheDir keeps compiled modules in dir, which is created if missing, so that a known module loads in
// milliseconds. Several processes may share the directory. If it cannot be used, modules still load, but are compiled
// each time; a warning is logged, and Host.CacheFailures counts it. The directory grows to at most 256 MiB.
func (c Config) WithCacheDir(dir string) Config { c.cacheDir = dir; return c }

// WithLogger sets the logger of plugins for calls whose Env has no logger.
func (c Config) WithLogger(l *slog.Logger) Config { c.logger = l; return c }

// WithChainTimeout limits the wall-clock time of a chain; the default is 5 s. Fuel stops a plugin far earlier, and at
// the same instruction on every machine; the timeout covers costs that fuel does not foresee. It is checked when a
// plugin calls the host, between the operations of a JSON Patch, and between plugins.
func (c Config) WithChainTimeout(d time.Duration) Config { c.timeout = d; return c }

// WithLeakReporter sets a function that is called for plugins whose calls fail in instances that have run before and
// succeed in fresh ones: at a plugin's first such call, and then at most every ten minutes. It must not block. Host
// logs the same.
func (c Config) WithLeakReporter(report func(plugin string, err error)) Config {
	c.onLeak = report
	return c
}

// leakReportInterval is the minimum time between two reports about a plugin that leaks.
const leakReportInterval = 10 * time.Minute

// Limits are the limits of one plugin. A zero field means the default.
type Limits struct {
	// Fuel limits a call, and the start of an instance. An instruction costs about one unit; a host call costs 256,
	// plus a price for its work. The default is 200 million: 6–30 ms of a guest's own code, and at most half a second
	// of work by the host. In the portable tier the input raises Fuel and MemoryPages.
	Fuel int64
	// MemoryPages limits the memory of one instance, in pages of 64 KiB. The default is 256 (16 MiB).
	MemoryPages int
	// OutputBytes limits the bytes that one call may write: values, keys, logs, warnings, and output of the portable
	// tier. The default is 2 MiB, more than an API server accepts. In the portable tier the input raises it.
	OutputBytes int
	// CallDepth limits the nesting of wasm functions, in units of a small frame. The default is 65,536.
	CallDepth int
	// ModuleBytes limits the size of the binary. The default is 32 MiB.
	ModuleBytes int
	// Handles limits the nodes of object, context and configuration that one call may visit. The default is 262,144.
	Handles int
}

// DefaultLimits returns the values that replace zero fields of Limits.
func DefaultLimits() Limits {
	return Limits{
		Fuel:        fuel.DefaultStart,
		MemoryPages: fuel.DefaultMemoryPages,
		OutputBytes: 2 << 20,
		CallDepth:   fuel.DefaultCallDepth,
		ModuleBytes: 32 << 20,
		Handles:     1 << 18,
	}
}

// withDefaults returns l with its zero fields taken from d.
func (l Limits) withDefaults(d Limits) Limits {
	return Limits{
		Fuel:        cmp.Or(l.Fuel, d.Fuel),
		MemoryPages: cmp.Or(l.MemoryPages, d.MemoryPages),
		OutputBytes: cmp.Or(l.OutputBytes, d.OutputBytes),
		CallDepth:   cmp.Or(l.CallDepth, d.CallDepth),
		ModuleBytes: cmp.Or(l.ModuleBytes, d.ModuleBytes),
		Handles:     cmp.Or(l.Handles, d.Handles),
	}
}

// PluginConfig configures a plugin at load.
type PluginConfig struct {
	// Config is the configuration that the plugin reads, in JSON types as in an unstructured object. It must not be
	// modified later.
	Config map[string]any
	Limits Limits
	// Writes narrows the paths that the manifest allows: an edit must be below a path of both. If nil, the manifest
	// alone decides; if empty, no write is allowed.
	Writes []string
	// Capabilities narrows the capabilities of the manifest. If nil, the manifest alone decides; if empty, there are
	// none.
	Capabilities []string
	// Kinds are the kinds of a module of the portable tier. Having no manifest, it has no Writes and Capabilities but
	// these either.
	Kinds []string
	// Fresh resets the instance to its initial state before each call, also within a domain (see Env.Domain).
	Fresh bool
	// IgnoreFailure drops the edits of a failed call and continues the chain with a warning.
	IgnoreFailure bool

	// unmetered omits the fuel counter. It is for benchmarks only: nothing would stop a loop.
	unmetered bool
}
