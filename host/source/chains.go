// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/refract-project/refract/host"
)

// ChainsConfig configures Chains.
type ChainsConfig struct {
	Host     *host.Host
	Registry *host.Registry
	// Kinds are the keys of the registry, with the API group unless it is the core group: "Pod",
	// "Ingress.networking.k8s.io". AddKind and RemoveKind change them later.
	Kinds []string
	// Defaults are the default plugins. They must load. The one for "*" is for all kinds that no other one is for.
	Defaults []Module
	// Guard of a kind's chains; nil means host.DefaultGuard.
	Guard func(kind string, podSpecs ...string) host.Guard
	// LastGoodDir keeps the last good version of each plugin across restarts; it is created when needed. Empty keeps none: a file that
	// is broken at start is left out then.
	LastGoodDir string
	// Logger gets what LastGoodDir could not keep; nil means slog.Default.
	Logger *slog.Logger
}

// Chains keeps the chains of a registry in line with a set of modules. Safe for concurrent use.
type Chains struct {
	config   ChainsConfig
	lastGood lastGood

	applying sync.Mutex // one Apply at a time; held while modules compile
	refused  map[string]refusal
	notKept  string // why LastGoodDir could not be used the last time
	failures atomic.Int64
	hostLoad func(ctx context.Context, name string, wasm []byte, pc host.PluginConfig) (*host.Plugin, error)
	now      func() time.Time

	mu       sync.Mutex          // never held while a module compiles
	podSpecs map[string][]string // by kind, see AddKind
	defaults []*running
	extra    map[string]*running
	present  map[chainKey][]*host.Plugin
	closing  sync.WaitGroup
}

// running is a loaded plugin with what decides about its place.
type running struct {
	name    string
	digest  [sha256.Size]byte // of module and options
	options Options
	plugin  *host.Plugin
	kinds   []string // those it is in the chains of

	warnings []string // what its options say without effect
	surplus  error    // why it is in no chain although it is for kinds: there are too many
}

// refusal remembers that the host did not accept a module. It is not compiled again until it changes, or, when the module may not
// be the cause, until retryAt.
type refusal struct {
	digest  [sha256.Size]byte
	err     error
	tries   int
	retryAt time.Time // zero: never
}

const (
	minRetryDelay = 5 * time.Second
	maxRetryDelay = 5 * time.Minute
)

// retryDelay is the time until a module is tried again after so many attempts.
func retryDelay(tries int) time.Duration {
	return min(minRetryDelay<<min(tries, 10), maxRetryDelay)
}

// NewChains loads the default plugins and puts the first chains into the registry. It returns an error that
// names the default plugin which could not be loaded.
func NewChains(ctx context.Context, config ChainsConfig) (*Chains, error) {
	if config.Guard == nil {
		config.Guard = host.DefaultGuard
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	c := &Chains{
		config: config, lastGood: lastGood{dir: config.LastGoodDir, marks: map[string]mark{}},
		refused: map[string]refusal{}, hostLoad: config.Host.Load, now: time.Now,
		extra: map[string]*running{}, podSpecs: map[string][]string{}, present: map[chainKey][]*host.Plugin{},
	}
	for _, m := range config.Defaults {
		r, err := c.load(ctx, m)
		if err != nil {
			return nil, fmt.Errorf("loading default plugin %s, %w", m.Name, err)
		}
		r.kinds = r.among(config.Kinds)
		c.defaults = append(c.defaults, r)
	}
	slices.SortFunc(c.defaults, before)
	if err := c.swap(ctx, c.extra); err != nil {
		return nil, err
	}
	return c, nil
}

// Apply makes modules the plugins that run in addition to the default ones: loads what is new or changed, removes
// the others, swaps the changed chains, and closes unused plugins. An invalid module
// leaves its earlier version in place. The result has one status for each module.
func (c *Chains) Apply(ctx context.Context, modules []Module) []Status {
	c.applying.Lock()
	defer c.applying.Unlock()
	c.forget(modules)
	next, problems := map[string]*running{}, map[string]error{}
	present := c.running()
	for _, m := range modules {
		old := present[m.Name]
		r, err := c.accept(ctx, m, old)
		if err != nil {
			problems[m.Name] = err
		}
		if r == nil && !errors.Is(err, errNoModule) {
			r = c.earlier(ctx, m.Name, old)
		}
		if r != nil {
			next[m.Name] = r
		}
	}
	states := c.install(ctx, modules, next, problems)
	c.remember(modules, problems)
	return states
}

// Plugins returns those that are loaded, the default ones first.
func (c *Chains) Plugins() []*host.Plugin {
	c.mu.Lock()
	defer c.mu.Unlock()
	var loaded []*host.Plugin
	for _, r := range c.defaults {
		loaded = append(loaded, r.plugin)
	}
	for _, name := range slices.Sorted(maps.Keys(c.extra)) {
		loaded = append(loaded, c.extra[name].plugin)
	}
	return loaded
}

// running returns the plugins of the last Apply, which alone replaces them.
func (c *Chains) running() map[string]*running {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.extra
}

// install puts the plugins into the chains of the kinds that there are now.
func (c *Chains) install(ctx context.Context, modules []Module, next map[string]*running, problems map[string]error) []Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range next {
		r.kinds = r.among(c.config.Kinds)
	}
	if err := c.swap(ctx, next); err != nil {
		next = c.stay(ctx, next, problems, err)
	}
	return statuses(modules, next, problems)
}

// earlier is the version of a plugin to go on with while its file is wrong: the running one or, at start, the one that the
// process before us ran. It is nil when there is none.
func (c *Chains) earlier(ctx context.Context, name string, old *running) *running {
	if old != nil {
		return old
	}
	m, err := c.lastGood.recall(name)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.failures.Add(1)
			c.config.Logger.Warn("The last good version of a plugin cannot be used", "plugin", name, "err", err)
		}
		return nil
	}
	r, err := c.load(ctx, m)
	if err != nil {
		c.config.Logger.Warn("The last good version of a plugin cannot be used", "plugin", name, "err", err)
		return nil
	}
	return r
}

// remember keeps what is good for the next start. A failure costs nothing now: it is logged once, counted, and the next Apply
// tries again.
func (c *Chains) remember(modules []Module, problems map[string]error) {
	err := c.lastGood.forget(modules)
	for i := range modules {
		if problems[modules[i].Name] == nil {
			err = errors.Join(err, c.lastGood.keep(&modules[i]))
		}
	}
	if err == nil {
		c.notKept = ""
		return
	}
	c.failures.Add(1)
	if c.notKept != err.Error() {
		c.notKept = err.Error()
		c.config.Logger.Warn("Plugins could not be kept for the next start, trying again at each look at the plugin directory", "folder", c.config.LastGoodDir, "err", err)
	}
}

// LastGoodFailures returns how often ChainsConfig.LastGoodDir could not be used as it was.
func (c *Chains) LastGoodFailures() int64 { return c.failures.Load() }

// stay keeps the chains as they are when next could not be built, and closes what was loaded for it.
func (c *Chains) stay(ctx context.Context, next map[string]*running, problems map[string]error, err error) map[string]*running {
	for name, r := range next {
		if c.extra[name] != r {
			problems[name] = err
			c.retire(ctx, r)
		}
	}
	return c.extra
}

// forget drops the refusals of modules that are gone.
func (c *Chains) forget(modules []Module) {
	gone := func(name string) bool {
		return !slices.ContainsFunc(modules, func(m Module) bool { return m.Name == name })
	}
	maps.DeleteFunc(c.refused, func(name string, _ refusal) bool { return gone(name) })
}

// accept returns the running plugin of a module: the old one when nothing changed.
func (c *Chains) accept(ctx context.Context, m Module, old *running) (*running, error) {
	if m.Err != nil {
		return nil, m.Err
	}
	if old != nil && old.digest == m.digest() {
		old.warnings = c.warningsOf(m, old) // the text of its options may be another, and so may the kinds
		return old, nil
	}
	refused := c.refused[m.Name]
	if refused.digest != m.digest() {
		refused = refusal{digest: m.digest()}
	}
	if refused.err != nil && (refused.retryAt.IsZero() || c.now().Before(refused.retryAt)) {
		return nil, refused.err
	}
	if err := c.checkNames(m); err != nil {
		return nil, err
	}
	r, err := c.load(ctx, m)
	delete(c.refused, m.Name)
	if err != nil && ctx.Err() == nil {
		c.refused[m.Name] = refused.again(err, c.now())
	}
	return r, err
}

// again is the refusal after one more attempt.
func (r refusal) again(err error, now time.Time) refusal {
	r.err, r.retryAt = err, time.Time{}
	if host.IsTransient(err) {
		r.retryAt = now.Add(retryDelay(r.tries))
		r.tries++
	}
	return r
}

func (c *Chains) checkNames(m Module) error {
	if err := m.Options.CheckReplaces(c.config.Defaults); err != nil {
		return err
	}
	var names []string
	for _, d := range c.defaults {
		names = append(names, d.name)
	}
	if slices.Contains(names, m.Name) && m.Options.Replaces != m.Name {
		return fmt.Errorf("%s is also the name of a default plugin: rename the file, or set `replaces: %s` in %s.yaml", m.Name, m.Name, m.Name)
	}
	return nil
}

func (c *Chains) load(ctx context.Context, m Module) (*running, error) {
	if m.Err != nil {
		return nil, m.Err
	}
	plugin, err := c.hostLoad(ctx, m.Name, m.Wasm, m.Options.PluginConfig())
	if err != nil {
		return nil, err
	}
	r := &running{name: m.Name, digest: m.digest(), options: m.Options, plugin: plugin}
	// Kinds that are not reflected now may be later; those that the plugin is not for are invalid.
	if len(m.Options.Kinds) > 0 && len(r.among(m.Options.Kinds)) == 0 {
		err = fmt.Errorf("kinds: the plugin is for %s, and none of these is among %s",
			strings.Join(plugin.Manifest().Kinds, ", "), strings.Join(m.Options.Kinds, ", "))
		return nil, errors.Join(err, plugin.Close(ctx))
	}
	r.warnings = c.warningsOf(m, r)
	return r, nil
}

// warningsOf a plugin, as it was loaded from a module.
func (c *Chains) warningsOf(m Module, r *running) []string {
	return slices.Concat(m.warnings, r.plugin.Warnings(), c.ineffective(r))
}

// ineffective lists what the options of a plugin say in vain.
func (c *Chains) ineffective(r *running) (warnings []string) {
	for _, kind := range r.options.Kinds {
		candidates := slices.Concat([]string{kind}, r.plugin.Manifest().Kinds, c.kinds())
		if !slices.ContainsFunc(r.among(candidates), func(k string) bool { return isNamedBy(k, kind) }) {
			warnings = append(warnings, fmt.Sprintf("kinds: %s has no effect, the plugin is for %s", kind, strings.Join(r.plugin.Manifest().Kinds, ", ")))
		}
	}
	for _, d := range c.defaults {
		if d.name == r.options.Replaces && !d.general() && len(r.among(d.plugin.Manifest().Kinds)) == 0 {
			warnings = append(warnings, fmt.Sprintf("replaces: %s has no effect, the plugin is for none of its kinds (%s)", d.name, strings.Join(d.plugin.Manifest().Kinds, ", ")))
		}
	}
	return warnings
}

// isNamedBy reports whether an entry of the option kinds stands for a kind.
func isNamedBy(kind, entry string) bool {
	name, group, _ := strings.Cut(kind, ".")
	return host.MatchesKind([]string{entry}, name, group)
}

func (c *Chains) kinds() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.config.Kinds
}

// matches reports whether the plugin belongs in the chain.
func (r *running) matches(kind string, hook host.Hook) bool {
	return r.options.Matches(r.plugin.Manifest(), kind, hook)
}

// digest distinguishes modules with their options.
func (m *Module) digest() [sha256.Size]byte {
	sum := sha256.Sum256(m.Wasm)
	options, err := json.Marshal(m.Options)
	if err != nil { // they were decoded from JSON
		options = []byte(err.Error())
	}
	return sha256.Sum256(append(sum[:], options...))
}
