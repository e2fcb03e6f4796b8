// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/refract-project/refract/host/fuel"
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
type Limits struct {
	// Fuel limits the work of a call, and of the start of an instance. An instruction costs about one unit. A call of
	// the host costs 256 units plus the price of its work. The default is 200 million units: 6–30 ms of the guest's
	// own code, or at most half a second of work by the host. In the portable tier, Fuel and MemoryPages are
	// increased with the size of the input.
	Fuel int64
	// MemoryPages limits the memory of one instance, in pages of 64 KiB. The default is 256 (16 MiB).
	MemoryPages int
	// OutputBytes limits the bytes that one call may write: values, keys, logs, warnings, and the output in the
	// portable tier. The default is 2 MiB, which is more than etcd accepts by default. In the portable tier, it is
	// increased with the size of the input.
	OutputBytes int
	// CallDepth limits the nesting of wasm functions. Small stack frames count as one level, larger ones as several.
	// The default is 65,536.
	CallDepth int
	// ModuleBytes limits the size of a module's binary. The default is 32 MiB.
	ModuleBytes int
	// Handles limits how many nodes of the object, the context and the configuration one call may visit. The default
	// is 262,144.
	Handles int
}

// DefaultLimits returns the values that apply where fields of Limits are zero.
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

// withDefaults returns l with the values of d in fields that are zero.
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
