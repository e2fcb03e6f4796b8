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

// ChainsConfig is the configuration of Chains.
type ChainsConfig struct {
	Host     *host.Host
	Registry *host.Registry
	// Kinds are the keys of the registry, with the API group unless it is the core group: "Pod",
	// "Ingress.networking.k8s.io". AddKind and RemoveKind change them later.
	Kinds []string
	// Defaults are the default plugins. They must load. The plugin for "*" is used for all kinds without another
	// default plugin.
	Defaults []Module
	// Guard returns the guard of a kind's chains. Nil means host.DefaultGuard.
	Guard func(kind string, podSpecs ...string) host.Guard
	// LastGoodDir keeps the last good version of each plugin across restarts; it is created when needed. If empty, no
	// version is kept: a file that is broken at startup is then skipped.
	LastGoodDir string
	// Logger receives errors of LastGoodDir. Nil means slog.Default().
	Logger *slog.Logger
}

// Chains keeps the chains of a registry in line with a set of modules. It is safe for concurrent use.
type Chains struct {
	config   ChainsConfig
	lastGood lastGood

	applying sync.Mutex // one Apply at a time; held while modules compile
	refused  map[string]refusal
	notKept  string // last error of LastGoodDir
	failures atomic.Int64
	hostLoad func(ctx context.Context, name string, wasm []byte, pc host.PluginConfig) (*host.Plugin, error)
	now      func() time.Time

	mu       sync.Mutex          // never held while a module compiles
	podSpecs map[string][]string // keyed by kind, see AddKind
	defaults []*running
	extra    map[string]*running
	present  map[chainKey][]*host.Plugin
	closing  sync.WaitGroup
}

// running is a loaded plugin with the data that determines its chains.
type running struct {
	name    string
	digest  [sha256.Size]byte // digest of module and options
	options Options
	plugin  *host.Plugin
	kinds   []string // kinds whose chains contain it

	warnings []string // about options without effect
	// The chains of its kinds are full, so the plugin is in no chain.
	surplus error
}

// refusal records that the host did not accept a module. It is not compiled again until it changes or, if the module
// may not be the cause, until retryAt.
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

// retryDelay returns the time until the next attempt after a number of failed ones.
func retryDelay(tries int) time.Duration {
	return min(minRetryDelay<<min(tries, 10), maxRetryDelay)
}

// NewChains loads the default plugins and puts the first chains into the registry. Its error names the default plugin
// that could not be loaded.
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
		r, err := c.loadModule(ctx, m)
		if err != nil {
			return nil, fmt.Errorf("loading default plugin %s, %w", m.Name, err)
		}
		r.kinds = r.matchingKinds(config.Kinds)
		c.defaults = append(c.defaults, r)
	}
	slices.SortFunc(c.defaults, comparePlugins)
	if err := c.swapChains(ctx, c.extra); err != nil {
		return nil, err
	}
	return c, nil
}

// Apply makes modules the plugins that run in addition to the default ones: it loads new and changed ones, removes the
// others, swaps the changed chains, and closes unused plugins. If a module is invalid, its previous version stays in
// place. The result has one status for each module.
func (c *Chains) Apply(ctx context.Context, modules []Module) []Status {
	c.applying.Lock()
	defer c.applying.Unlock()
	c.forgetRefusals(modules)
	next, problems := map[string]*running{}, map[string]error{}
	present := c.runningPlugins()
	for _, m := range modules {
		old := present[m.Name]
		r, err := c.acceptModule(ctx, m, old)
		if err != nil {
			problems[m.Name] = err
		}
		if r == nil && !errors.Is(err, errNoModule) {
			r = c.earlierVersion(ctx, m.Name, old)
		}
		if r != nil {
			next[m.Name] = r
		}
	}
	states := c.installPlugins(ctx, modules, next, problems)
	c.saveLastGood(modules, problems)
	return states
}

// Plugins returns the loaded plugins, the default ones first.
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

// runningPlugins returns the plugins of the last Apply, which is the only caller that replaces them.
func (c *Chains) runningPlugins() map[string]*running {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.extra
}

// installPlugins puts the plugins into the chains of the current kinds.
func (c *Chains) installPlugins(ctx context.Context, modules []Module, next map[string]*running, problems map[string]error) []Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range next {
		r.kinds = r.matchingKinds(c.config.Kinds)
	}
	if err := c.swapChains(ctx, next); err != nil {
		next = c.keepCurrent(ctx, next, problems, err)
	}
	return statusesOf(modules, next, problems)
}

// earlierVersion returns the version of a plugin to use while its file is invalid: the running one or, at startup, the one
// that ran before the restart. It returns nil if there is none.
func (c *Chains) earlierVersion(ctx context.Context, name string, old *running) *running {
	if old != nil {
		return old
	}
	m, err := c.lastGood.recallModule(name)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.failures.Add(1)
			c.config.Logger.Warn("The last good version of a plugin cannot be used", "plugin", name, "err", err)
		}
		return nil
	}
	r, err := c.loadModule(ctx, m)
	if err != nil {
		c.config.Logger.Warn("The last good version of a plugin cannot be used", "plugin", name, "err", err)
		return nil
	}
	return r
}

// saveLastGood saves the valid modules for the next startup. A failure has no immediate effect: it is logged once and
// counted, and the next Apply tries again.
func (c *Chains) saveLastGood(modules []Module, problems map[string]error) {
	err := c.lastGood.forgetOthers(modules)
	for i := range modules {
		if problems[modules[i].Name] == nil {
			err = errors.Join(err, c.lastGood.keepModule(&modules[i]))
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

// LastGoodFailures returns how often ChainsConfig.LastGoodDir could not be used.
func (c *Chains) LastGoodFailures() int64 { return c.failures.Load() }

// keepCurrent keeps the chains unchanged if next could not be built, and closes the plugins that were loaded for it.
func (c *Chains) keepCurrent(ctx context.Context, next map[string]*running, problems map[string]error, err error) map[string]*running {
	for name, r := range next {
		if c.extra[name] != r {
			problems[name] = err
			c.retirePlugin(ctx, r)
		}
	}
	return c.extra
}

// forgetRefusals drops the refusals of modules that are gone.
func (c *Chains) forgetRefusals(modules []Module) {
	gone := func(name string) bool {
		return !slices.ContainsFunc(modules, func(m Module) bool { return m.Name == name })
	}
	maps.DeleteFunc(c.refused, func(name string, _ refusal) bool { return gone(name) })
}

// acceptModule returns the running plugin of a module, which is the old one if nothing changed.
func (c *Chains) acceptModule(ctx context.Context, m Module, old *running) (*running, error) {
	if m.Err != nil {
		return nil, m.Err
	}
	if old != nil && old.digest == m.computeDigest() {
		// The text of the options and the kinds may have changed.
		old.warnings = c.warningsOf(m, old)
		return old, nil
	}
	refused := c.refused[m.Name]
	if refused.digest != m.computeDigest() {
		refused = refusal{digest: m.computeDigest()}
	}
	if refused.err != nil && (refused.retryAt.IsZero() || c.now().Before(refused.retryAt)) {
		return nil, refused.err
	}
	if err := c.checkNames(m); err != nil {
		return nil, err
	}
	r, err := c.loadModule(ctx, m)
	delete(c.refused, m.Name)
	if err != nil && ctx.Err() == nil {
		c.refused[m.Name] = refused.retryLater(err, c.now())
	}
	return r, err
}

// retryLater returns the refusal after one more attempt.
func (r refusal) retryLater(err error, now time.Time) refusal {
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

func (c *Chains) loadModule(ctx context.Context, m Module) (*running, error) {
	if m.Err != nil {
		return nil, m.Err
	}
	plugin, err := c.hostLoad(ctx, m.Name, m.Wasm, m.Options.PluginConfig())
	if err != nil {
		return nil, err
	}
	r := &running{name: m.Name, digest: m.computeDigest(), options: m.Options, plugin: plugin}
	// A kind that is not reflected now may be later, but a kind that the plugin does not support is invalid.
	if len(m.Options.Kinds) > 0 && len(r.matchingKinds(m.Options.Kinds)) == 0 {
		err = fmt.Errorf("kinds: the plugin is for %s, and none of these is among %s",
			strings.Join(plugin.Manifest().Kinds, ", "), strings.Join(m.Options.Kinds, ", "))
		return nil, errors.Join(err, plugin.Close(ctx))
	}
	r.warnings = c.warningsOf(m, r)
	return r, nil
}

// warningsOf returns the warnings about a plugin that was loaded from a module.
func (c *Chains) warningsOf(m Module, r *running) []string {
	return slices.Concat(m.warnings, r.plugin.Warnings(), c.ineffectiveOptions(r))
}

// ineffectiveOptions returns warnings about options that have no effect.
func (c *Chains) ineffectiveOptions(r *running) (warnings []string) {
	for _, kind := range r.options.Kinds {
		candidates := slices.Concat([]string{kind}, r.plugin.Manifest().Kinds, c.currentKinds())
		if !slices.ContainsFunc(r.matchingKinds(candidates), func(k string) bool { return isNamedBy(k, kind) }) {
			warnings = append(warnings, fmt.Sprintf("kinds: %s has no effect, the plugin is for %s", kind, strings.Join(r.plugin.Manifest().Kinds, ", ")))
		}
	}
	for _, d := range c.defaults {
		if d.name == r.options.Replaces && !d.isGeneral() && len(r.matchingKinds(d.plugin.Manifest().Kinds)) == 0 {
			warnings = append(warnings, fmt.Sprintf("replaces: %s has no effect, the plugin is for none of its kinds (%s)", d.name, strings.Join(d.plugin.Manifest().Kinds, ", ")))
		}
	}
	return warnings
}

// isNamedBy reports whether an entry of the option kinds matches a kind.
func isNamedBy(kind, entry string) bool {
	name, group, _ := strings.Cut(kind, ".")
	return host.MatchesKind([]string{entry}, name, group)
}

func (c *Chains) currentKinds() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.config.Kinds
}

// matchesChain reports whether the plugin belongs in the chain.
func (r *running) matchesChain(kind string, hook host.Hook) bool {
	return r.options.Matches(r.plugin.Manifest(), kind, hook)
}

// computeDigest returns a digest of the module and its options.
func (m *Module) computeDigest() [sha256.Size]byte {
	sum := sha256.Sum256(m.Wasm)
	options, err := json.Marshal(m.Options)
	// The options were decoded from JSON, so this cannot fail.
	if err != nil {
		options = []byte(err.Error())
	}
	return sha256.Sum256(append(sum[:], options...))
}
