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
	"reflect"
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
	// Kinds are the kinds of the registry, with their API group unless it is the core group: "Pod",
	// "Ingress.networking.k8s.io". AddKind and RemoveKind change the set later.
	Kinds []string
	// Defaults are the default plugins. All of them must load. The plugin for "*" is used for kinds without another
	// default plugin.
	Defaults []Module
	// Guard returns the guard for the chains of a kind. If it is nil, host.DefaultGuard is used.
	Guard func(kind string, podSpecs ...string) host.Guard
	// LastGoodDir is the folder in which the last good version of each plugin of the directory survives restarts. It
	// is created when it is needed. If it is empty, no versions are stored: a file that is broken at the start then
	// makes objects of its kinds wait.
	LastGoodDir string
	// Logger logs errors of LastGoodDir. If it is nil, slog.Default() is used.
	Logger *slog.Logger
}

// Chains keeps the chains of a registry consistent with the modules of a directory and the declared plugins. It is
// safe for concurrent use.
type Chains struct {
	config   ChainsConfig
	lastGood lastGood
	pool     pool

	applying sync.Mutex // serializes Apply and Declare; held while modules are compiled
	started  bool       // whether the first Apply has ended
	refused  map[identity]refusal
	notKept  string // message of the last error of LastGoodDir
	failures atomic.Int64
	hostLoad func(ctx context.Context, name string, wasm []byte, pc host.PluginConfig) (*host.Plugin, error)
	now      func() time.Time

	mu       sync.Mutex          // never held while a module is compiled
	podSpecs map[string][]string // keyed by kind; see AddKind
	defaults []*running
	current  roster
	present  map[host.ChainKey]composed
	version  uint64 // incremented with each swap
	// candidates are the candidates that are not closed.
	candidates map[*Candidate]struct{}
}

// identity identifies a plugin by name and origin. Running plugins have different names.
type identity struct {
	origin Origin
	name   string
}

// roster contains the plugins other than the default plugins, by name, and the holds for plugins that cannot run.
type roster struct {
	running map[string]*running
	held    []*hold
}

// withOrigin returns the plugins and holds of one origin.
func (r roster) withOrigin(origin Origin) roster {
	found := roster{running: map[string]*running{}}
	for name, plugin := range r.running {
		if plugin.origin == origin {
			found.running[name] = plugin
		}
	}
	for _, h := range r.held {
		if h.origin == origin {
			found.held = append(found.held, h)
		}
	}
	return found
}

// hasDeclaredOf reports whether both rosters have the same declared plugins.
func (r roster) hasDeclaredOf(other roster) bool {
	a, b := r.withOrigin(OriginDeclared), other.withOrigin(OriginDeclared)
	return maps.Equal(a.running, b.running) && slices.Equal(a.held, b.held)
}

// running is a loaded plugin with the information that determines its chains.
type running struct {
	name     string
	origin   Origin
	digest   digest // digest of module and options
	options  Options
	selector host.Selector
	module   *loaded
	kinds    []string // kinds whose chains contain the plugin

	warnings []string // warnings about options that have no effect
	// surplus is set if the chains of the plugin's kinds are full. The plugin is then in no chain.
	surplus error
}

func (r *running) plugin() *host.Plugin { return r.module.plugin }

// refusal records that the host has not accepted a module. The module is compiled again when it changes. If the module
// might not be the cause, it is also compiled again at retryAt.
type refusal struct {
	digest  digest
	err     error
	tries   int
	retryAt time.Time // zero means never
}

// minRetryDelay and maxRetryDelay bound the delay before loading a module is retried. With a longer delay, a plugin
// is broken for longer after the cause has ended. With a shorter delay, a bad module is compiled more often.
const (
	minRetryDelay = 5 * time.Second
	maxRetryDelay = 5 * time.Minute
)

// retryDelay returns the delay before the next attempt after the given number of failed attempts.
func retryDelay(tries int) time.Duration {
	return min(minRetryDelay<<min(tries, 10), maxRetryDelay)
}

// NewChains loads the default plugins and puts the first chains into the registry. If a default plugin cannot be
// loaded, the error names it.
func NewChains(ctx context.Context, config ChainsConfig) (*Chains, error) {
	if config.Guard == nil {
		config.Guard = host.DefaultGuard
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	c := &Chains{
		config: config, lastGood: lastGood{dir: config.LastGoodDir, marks: map[string]mark{}},
		refused: map[identity]refusal{}, hostLoad: config.Host.Load, now: time.Now, pool: pool{modules: map[digest]*loaded{}},
		podSpecs: map[string][]string{}, present: map[host.ChainKey]composed{}, candidates: map[*Candidate]struct{}{},
	}
	for _, m := range config.Defaults {
		w := wantedModule(m)
		w.origin = OriginDefault
		r, err := c.loadModule(ctx, &w)
		if err != nil {
			return nil, fmt.Errorf("loading default plugin %s, %w", m.Name, err)
		}
		r.kinds = r.matchingKinds(config.Kinds)
		c.defaults = append(c.defaults, r)
	}
	slices.SortFunc(c.defaults, comparePlugins)
	if err := c.swapChains(ctx, c.current); err != nil {
		return nil, err
	}
	return c, nil
}

// Apply makes modules the plugins of the directory, in addition to the default plugins and the declared plugins. It
// loads new and changed modules, removes missing ones, swaps all changed chains at once, and closes unused plugins.
// If a module is invalid, its previous version is used. If the module has no previous version in the first Apply,
// objects of its kinds wait until it is valid or removed, because an earlier version in another process may have
// mutated them. This does not apply if the options have IgnoreFailure. The result has one status for each module.
func (c *Chains) Apply(ctx context.Context, modules []Module) []Status {
	c.applying.Lock()
	defer c.applying.Unlock()
	list := wantedModules(modules)
	next := c.accept(ctx, OriginFolder, list)
	states := c.installPlugins(ctx, list, next)
	c.saveLastGood(modules, next.problems)
	c.started = c.started || ctx.Err() == nil
	return states
}

// accepted is a roster, with the errors of its new plugins by name.
type accepted struct {
	roster
	problems map[string]error
}

// accept returns a roster with the given plugins of one origin and the current plugins of the other origins. The caller
// must install or release its plugins that are not in the current roster.
func (c *Chains) accept(ctx context.Context, origin Origin, list []wanted) accepted {
	c.forgetRefusals(origin, list)
	present := c.runningPlugins()
	other := OriginFolder
	if origin == OriginFolder {
		other = OriginDeclared
	}
	next := accepted{present.withOrigin(other), map[string]error{}}
	for i := range list {
		w := &list[i]
		old := present.running[w.Name]
		if old != nil && old.origin != origin {
			old = nil
		}
		r, err := c.acceptModule(ctx, w, old)
		if err != nil {
			next.problems[w.Name] = err
		}
		if r == nil {
			r = c.earlierVersion(ctx, w, old)
		}
		switch taken := next.running[w.Name]; {
		case r != nil && taken == nil:
			next.running[w.Name] = r
		case r == nil && c.holds(w, err):
			next.held = append(next.held, newHold(w, err))
		}
	}
	return next
}

// holds reports whether objects must wait for a plugin that cannot run because of err.
func (c *Chains) holds(w *wanted, err error) bool {
	switch {
	case errors.Is(err, errNoModule) && !w.hasOptions: // an options file without a module, whose options could not be read
		return false
	case w.hasOptions && w.Options.IgnoreFailure:
		return false
	case w.origin == OriginDeclared, !c.started:
		return true
	}
	return slices.ContainsFunc(c.runningPlugins().held, func(h *hold) bool { return h.origin == w.origin && h.name == w.Name })
}

// Plugins returns the loaded plugins, beginning with the default plugins.
func (c *Chains) Plugins() []*host.Plugin {
	c.mu.Lock()
	defer c.mu.Unlock()
	var plugins []*host.Plugin
	for _, r := range c.defaults {
		plugins = append(plugins, r.plugin())
	}
	for _, name := range slices.Sorted(maps.Keys(c.current.running)) {
		plugins = append(plugins, c.current.running[name].plugin())
	}
	return plugins
}

// runningPlugins returns the current plugins. They change only while c.applying is held.
func (c *Chains) runningPlugins() roster {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// installPlugins puts the plugins of next into the chains of the current kinds, and returns the statuses.
func (c *Chains) installPlugins(ctx context.Context, list []wanted, next accepted) []Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setKindsOf(next.roster, c.config.Kinds)
	if err := c.swapChains(ctx, next.roster); err != nil {
		next.roster = c.keepCurrent(ctx, next, err)
	}
	return statusesOf(list, next)
}

// earlierVersion returns the version of a plugin that is used while the wanted version is invalid. This is the
// running version or, for a file at the start, the version that ran before the restart. It returns nil if there is
// none.
func (c *Chains) earlierVersion(ctx context.Context, w *wanted, old *running) *running {
	if old != nil || w.origin != OriginFolder || c.nameTaken(w) != nil {
		return old
	}
	m, err := c.lastGood.recallModule(w.Name)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.failures.Add(1)
			c.config.Logger.Warn("The last good version of a plugin cannot be used", "plugin", w.Name, "err", err)
		}
		return nil
	}
	recalled := wantedModule(m)
	r, err := c.loadModule(ctx, &recalled)
	if err != nil {
		c.config.Logger.Warn("The last good version of a plugin cannot be used", "plugin", w.Name, "err", err)
		return nil
	}
	return r
}

// saveLastGood stores the valid modules for the next start. A failure has no immediate effect: it is logged once and
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

// keepCurrent is called if the chains of next could not be built. It releases the plugins that were loaded for next,
// and returns the current roster.
func (c *Chains) keepCurrent(ctx context.Context, next accepted, err error) roster {
	for name, r := range next.running {
		if c.current.running[name] != r {
			next.problems[name] = err
			c.pool.release(ctx, r.module)
		}
	}
	return c.current
}

// forgetRefusals removes the refusals of plugins that are no longer wanted.
func (c *Chains) forgetRefusals(origin Origin, list []wanted) {
	maps.DeleteFunc(c.refused, func(id identity, _ refusal) bool {
		return id.origin == origin && !slices.ContainsFunc(list, func(w wanted) bool { return w.Name == id.name })
	})
}

// acceptModule returns the running plugin for a module. If the module has not changed, it returns old.
func (c *Chains) acceptModule(ctx context.Context, w *wanted, old *running) (*running, error) {
	if w.Err != nil {
		return nil, w.Err
	}
	wantedDigest := w.computeDigest()
	if old != nil && old.digest == wantedDigest && sameSelector(old.selector, w.selector) {
		// Recompute the warnings: they also depend on the options as written and on the reflected kinds, which the
		// digest does not cover.
		old.warnings = c.warningsOf(w, old)
		return old, nil
	}
	id := identity{w.origin, w.Name}
	refused := c.refused[id]
	if refused.digest != wantedDigest {
		refused = refusal{digest: wantedDigest}
	}
	if refused.err != nil && (refused.retryAt.IsZero() || c.now().Before(refused.retryAt)) {
		return nil, refused.err
	}
	if err := c.checkNames(w); err != nil {
		return nil, err
	}
	r, err := c.loadModule(ctx, w)
	delete(c.refused, id)
	var unread *readError
	if err != nil && ctx.Err() == nil && !errors.As(err, &unread) {
		c.refused[id] = refused.retryLater(err, c.now())
	}
	return r, err
}

// retryLater returns the refusal after another failed attempt.
func (r refusal) retryLater(err error, now time.Time) refusal {
	r.err, r.retryAt = err, time.Time{}
	if host.IsTransient(err) {
		r.retryAt = now.Add(retryDelay(r.tries))
		r.tries++
	}
	return r
}

func (c *Chains) checkNames(w *wanted) error {
	if err := w.Options.CheckReplaces(c.config.Defaults); err != nil {
		return err
	}
	var names []string
	for _, d := range c.defaults {
		names = append(names, d.name)
	}
	if slices.Contains(names, w.Name) && w.Options.Replaces != w.Name {
		if w.origin == OriginDeclared {
			return fmt.Errorf("%s is also the name of a default plugin: choose another name, or set `replaces: %s`", w.Name, w.Name)
		}
		return fmt.Errorf("%s is also the name of a default plugin: rename the file, or set `replaces: %s` in %s.yaml", w.Name, w.Name, w.Name)
	}
	return c.nameTaken(w)
}

// nameTaken returns an error if a plugin of another origin has the same name.
func (c *Chains) nameTaken(w *wanted) error {
	r := c.runningPlugins().running[w.Name]
	switch {
	case r == nil || r.origin == w.origin:
		return nil
	case r.origin == OriginFolder:
		return fmt.Errorf("%s is also the name of a plugin of the plugin directory: rename one of them", w.Name)
	}
	return fmt.Errorf("%s is also the name of a ReflectionPlugin: rename the file or the ReflectionPlugin", w.Name)
}

func (c *Chains) loadModule(ctx context.Context, w *wanted) (*running, error) {
	if w.Err != nil {
		return nil, w.Err
	}
	module, err := c.openModule(ctx, w)
	if err != nil {
		return nil, err
	}
	r := &running{name: w.Name, origin: w.origin, digest: w.computeDigest(), options: w.Options, selector: w.selector, module: module}
	// A kind that is not reflected now may be reflected later. But a kind that the plugin does not support is an
	// error.
	if manifest := r.plugin().Manifest(); len(w.Options.Kinds) > 0 && len(r.matchingKinds(w.Options.Kinds)) == 0 {
		c.pool.release(ctx, module)
		return nil, fmt.Errorf("kinds: the plugin is for %s, and none of these is among %s",
			strings.Join(manifest.Kinds, ", "), strings.Join(w.Options.Kinds, ", "))
	}
	r.warnings = c.warningsOf(w, r)
	return r, nil
}

// openModule returns the loaded module, which other users may share.
func (c *Chains) openModule(ctx context.Context, w *wanted) (*loaded, error) {
	key := w.moduleDigest()
	if m := c.pool.share(key); m != nil {
		return m, nil
	}
	wasm, err := w.read(ctx)
	if err != nil {
		return nil, err
	}
	plugin, err := c.hostLoad(ctx, w.Name, wasm, w.Options.PluginConfig())
	if err != nil {
		return nil, err
	}
	return c.pool.add(key, plugin), nil
}

// warningsOf returns the warnings about a plugin that was loaded from a module.
func (c *Chains) warningsOf(w *wanted, r *running) []string {
	return slices.Concat(w.warnings, r.plugin().Warnings(), c.ineffectiveOptions(r))
}

// ineffectiveOptions returns warnings about options that have no effect.
func (c *Chains) ineffectiveOptions(r *running) (warnings []string) {
	for _, kind := range r.options.Kinds {
		candidates := slices.Concat([]string{kind}, r.plugin().Manifest().Kinds, c.currentKinds())
		if !slices.ContainsFunc(r.matchingKinds(candidates), func(k string) bool { return isNamedBy(k, kind) }) {
			warnings = append(warnings, fmt.Sprintf("kinds: %s has no effect, the plugin is for %s", kind, strings.Join(r.plugin().Manifest().Kinds, ", ")))
		}
	}
	for _, d := range c.defaults {
		if d.name == r.options.Replaces && !d.isGeneral() && len(r.matchingKinds(d.plugin().Manifest().Kinds)) == 0 {
			warnings = append(warnings, fmt.Sprintf("replaces: %s has no effect, the plugin is for none of its kinds (%s)", d.name, strings.Join(d.plugin().Manifest().Kinds, ", ")))
		}
	}
	return warnings
}

// isNamedBy reports whether an entry of the option kinds names the kind.
func isNamedBy(kind, entry string) bool {
	name, group, _ := strings.Cut(kind, ".")
	return host.MatchesKind([]string{entry}, name, group)
}

func (c *Chains) currentKinds() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.config.Kinds
}

// matchesChain reports whether the plugin belongs to a chain.
func (r *running) matchesChain(kind string, hook host.Hook) bool {
	return r.options.Matches(r.plugin().Manifest(), kind, hook)
}

// computeDigest returns a digest of the module and its options.
func (m *Module) computeDigest() digest { return optionsDigest(sha256.Sum256(m.Wasm), "", m.Options) }

// computeDigest returns a digest of the module and its options.
func (w *wanted) computeDigest() digest { return optionsDigest(w.digest, "", w.Options) }

// moduleDigest returns a digest of everything that determines the loaded module: its bytes, its name, and the options
// that the host needs.
func (w *wanted) moduleDigest() digest {
	options := w.Options
	options.Priority, options.Replaces = 0, ""
	return optionsDigest(w.digest, w.Name, options)
}

func optionsDigest(module digest, name string, o Options) digest {
	options, err := json.Marshal(o)
	// This cannot fail, because the options were decoded from JSON.
	if err != nil {
		options = []byte(err.Error())
	}
	return sha256.Sum256(slices.Concat(module[:], options, []byte(name)))
}

// sameSelector reports whether two selectors select the same objects. It may return false for selectors that cannot
// be compared.
func sameSelector(a, b host.Selector) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}
