// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/refract-project/refract/host/fuel"
)

// Config of a Host. Immutable: each WithX returns a changed copy.
type Config struct {
	cacheDir string
	logger   *slog.Logger
	timeout  time.Duration
	onLeak   func(plugin string, err error)
}

// NewConfig has no cache directory, logs to slog.Default(), and has the limits of DefaultLimits.
func NewConfig() Config { return Config{} }

// WithCacheDir keeps compiled modules in dir, which is made when missing: a module seen before loads in milliseconds.
// Several processes may share the directory. Whatever is wrong with it, modules load, in the time that compiling takes; a
// warning is logged, and Host.CacheFailures counts it. It grows to 256 MiB at most.
func (c Config) WithCacheDir(dir string) Config { c.cacheDir = dir; return c }

// WithLogger sets the logger of plugins for calls whose Env has none.
func (c Config) WithLogger(l *slog.Logger) Config { c.logger = l; return c }

// WithChainTimeout limits how long a chain may take in wall-clock time. Fuel stops a plugin far earlier, at the same place on
// every machine; this is for what fuel does not foresee. It is checked when a plugin calls the host, between the operations of a
// JSON Patch and between plugins. 5 s.
func (c Config) WithChainTimeout(d time.Duration) Config { c.timeout = d; return c }

// WithLeakReporter has report called for plugins whose calls fail in instances that have run before and succeed in fresh ones: at
// the first such call of a plugin, and then at most every ten minutes. It must not block. Host logs the same.
func (c Config) WithLeakReporter(report func(plugin string, err error)) Config {
	c.onLeak = report
	return c
}

// leakReportInterval is the time between two reports about a plugin that leaks.
const leakReportInterval = 10 * time.Minute

// Limits of one plugin. A zero field means the default.
type Limits struct {
	// Fuel of one call, and of the start of an instance: about one unit an instruction, 256 a host call and what its work
	// is worth. 200 million: 6–30 ms of a guest's own code, half a second at most of work that the host does for it. In the portable
	// tier the input adds to it, and to MemoryPages.
	Fuel int64
	// MemoryPages of 64 KiB that one instance may have. 256 = 16 MiB.
	MemoryPages int
	// OutputBytes that one call may write: values, keys, logs, warnings, output of the portable tier. 2 MiB, more than an
	// API server takes. In the portable tier the input adds to it.
	OutputBytes int
	// CallDepth of wasm functions, in units of a small frame. 65,536.
	CallDepth int
	// ModuleBytes of the binary. 32 MiB.
	ModuleBytes int
	// Handles: places of the object, context and configuration that one call may visit. 262,144.
	Handles int
}

// DefaultLimits are the values of zero fields of Limits.
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

// or fills zero fields of l from d.
func (l Limits) or(d Limits) Limits {
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
	// Config is the config root that the plugin reads; JSON types as in an unstructured object. Not to be modified later.
	Config map[string]any
	Limits Limits
	// Writes narrows the paths that the manifest allows: an edit must be below one of both. Nil leaves the manifest's; empty
	// allows none.
	Writes []string
	// Capabilities narrows the capabilities of the manifest. Nil leaves them; empty is none.
	Capabilities []string
	// Kinds of a module of the portable tier, which has no manifest, hence no Writes and Capabilities but these either.
	Kinds []string
	// Fresh puts the instance back to its start before each call, also within a domain (see Env.Domain).
	Fresh bool
	// IgnoreFailure drops the edits of a failed call and lets the chain go on, with a warning, instead of failing it.
	IgnoreFailure bool

	// unmetered leaves the fuel out. For benchmarks: nothing would stop a loop.
	unmetered bool
}
