// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/refract-project/refract/host/document"
)

// Config is immutable: each WithX returns a changed copy.
type Config struct {
	cacheDir string
	logger   *slog.Logger
	limits   Limits
}

// NewConfig has no cache directory, slog's default logger and the default limits.
func NewConfig() Config { return Config{} }

// WithCacheDir keeps compiled modules in dir, made when missing. Several processes may share it.
func (c Config) WithCacheDir(dir string) Config { c.cacheDir = dir; return c }

// WithLogger takes what plugins log.
func (c Config) WithLogger(l *slog.Logger) Config { c.logger = l; return c }

// WithLimits sets the limits of plugins that set none of their own.
func (c Config) WithLimits(l Limits) Config { c.limits = l; return c }

// Limits of one plugin; zero means the default.
type Limits struct {
	Fuel        int64 // per call, and for the start of an instance
	MemoryPages int   // of 64 KiB
	OutputBytes int   // written by one call, logs included
	CallDepth   int   // nested wasm calls
	ModuleBytes int
	Handles     int // nodes touched by one call
}

// DefaultLimits are what a zero field stands for.
func DefaultLimits() Limits { return Limits{} }

// Host runs plugins. Safe for concurrent use.
type Host struct{}

// New starts a host.
func New(ctx context.Context, c Config) (*Host, error) { return nil, errors.New("not there yet") }

// Close closes every plugin and frees the runtime.
func (h *Host) Close(ctx context.Context) error { return nil }

// PluginConfig is what a plugin is loaded with.
type PluginConfig struct {
	Config        map[string]any // the config root
	Limits        Limits
	Writes        []string // narrows the manifest's writes; nil = as the manifest says
	IgnoreFailure bool     // a failed call drops this plugin's edits and the chain goes on, with a warning
}

// Load checks, instruments and compiles a module. Errors: *LoadError.
func (h *Host) Load(ctx context.Context, name string, wasm []byte, pc PluginConfig) (*Plugin, error) {
	return nil, errors.New("not there yet")
}

// Manifest is what a module says about itself.
type Manifest struct {
	Name         string         `json:"name"`
	Version      string         `json:"version"`
	Kinds        []string       `json:"kinds"` // "Pod", "Ingress.networking.k8s.io", "*"
	Hooks        []string       `json:"hooks"` // "outgoing", "incoming"
	Writes       []string       `json:"writes"`
	ConfigSchema map[string]any `json:"configSchema,omitempty"`
}

// Matches tells whether the plugin is for this kind and hook.
func (m *Manifest) Matches(kind, group string, hook Hook) bool { return false }

// Plugin is one loaded module. Safe for concurrent use.
type Plugin struct{}

func (p *Plugin) Name() string        { return "" }
func (p *Plugin) Version() string     { return "" }
func (p *Plugin) Manifest() *Manifest { return nil }

// Digest is "sha256:<hex>" of the module as given to Load.
func (p *Plugin) Digest() string { return "" }

// Portable tells that the module is of the portable (JSON in, JSON out) tier.
func (p *Plugin) Portable() bool { return false }

// Close refuses new calls, waits for running ones (or ctx) and frees the instances.
func (p *Plugin) Close(ctx context.Context) error { return nil }

// Hook is a direction.
type Hook int

const (
	Outgoing Hook = iota
	Incoming
)

func (h Hook) String() string { return [...]string{"outgoing", "incoming"}[h] }

// Env is what a call may see of the world. Reuse it: Run keeps its result in it. Not for concurrent use.
type Env struct {
	Context map[string]any // the context root, read-only; JSON types only
	RemapIP func(ip string) (string, bool)
	Logger  *slog.Logger // nil = the host's
	Measure bool         // fill in Call.Duration (two clock reads a plugin)
	out     Outcome
}

// Outcome is what a chain did. Valid until the next Run with the same Env.
type Outcome struct {
	Skipped    bool
	SkipReason string
	Skipper    string // the plugin that skipped
	Warnings   []Warning
	Calls      []Call
}

// Warning becomes an Event.
type Warning struct{ Plugin, Message string }

// Call tells what one plugin used.
type Call struct {
	Plugin   string
	Fuel     int64
	Duration time.Duration // zero unless Env.Measure
	Err      error         // of a plugin with IgnoreFailure
}

// Guard is what no plugin may do. Paths as in the ABI.
type Guard struct {
	Immutable    []string // neither changed nor removed
	Unforgeable  []string // may be removed, never set
	Off          []string // booleans that are off in every result: setting one is an error, an inherited one is removed
	AllowedPaths []string // when not empty, plugins write only below these (and below what their manifest allows)
}

// DefaultGuard protects identity and ownership, and for pods the host's namespaces.
func DefaultGuard(kind string) Guard { return Guard{} }

// Chain is an immutable list of plugins with a guard. Safe for concurrent use.
type Chain struct{}

// NewChain builds a chain; no plugins makes an identity chain. Plugins without the hook are left out.
func NewChain(hook Hook, g Guard, plugins ...*Plugin) (*Chain, error) {
	return nil, errors.New("not there yet")
}

// Plugins lists the plugins in order.
func (c *Chain) Plugins() []*Plugin { return nil }

// Generation is set by Registry.Swap; larger is newer.
func (c *Chain) Generation() uint64 { return 0 }

// Run runs the chain on doc. All or nothing: on an error or a skip the document is back to its base. Errors:
// *TrapError, *OutOfFuelError, *LimitError, *AccessError, *PluginFailedError, *GuardError, *ClosedError.
func (c *Chain) Run(ctx context.Context, doc *document.Document, env *Env) (*Outcome, error) {
	return nil, errors.New("not there yet")
}

// Registry holds the present chain per kind and hook. Safe for concurrent use.
type Registry struct{ generation atomic.Uint64 }

// NewRegistry: guard gives the guard of kinds that have no chain; nil = DefaultGuard.
func NewRegistry(guard func(kind string, hook Hook) Guard) *Registry { return &Registry{} }

// Chain is never nil: a kind without a chain gets an identity chain with the guard.
func (r *Registry) Chain(kind string, hook Hook) *Chain { return nil }

// Run runs the present chain, again with the newer one when it was swapped and drained underneath.
func (r *Registry) Run(ctx context.Context, kind string, hook Hook, doc *document.Document, env *Env) (*Outcome, error) {
	return nil, errors.New("not there yet")
}

// Swap puts c in place (nil = back to identity), tells the subscribers and returns the chain that was there before (nil = none).
// Closing the plugins that no chain has any more is the caller's: Plugin.Close drains.
func (r *Registry) Swap(kind string, hook Hook, c *Chain) *Chain { return nil }

// Generation counts the swaps.
func (r *Registry) Generation() uint64 { return r.generation.Load() }

// Subscribe calls f after each swap, in Swap's goroutine, until the returned func is called.
func (r *Registry) Subscribe(f func(kind string, hook Hook, generation uint64)) (cancel func()) {
	return func() {}
}
