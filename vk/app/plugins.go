// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/prometheus/client_golang/prometheus"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/internal/folderplugins"
	defaultplugins "github.com/refract-project/refract/plugins"
	"github.com/refract-project/refract/vk/declared"
	"github.com/refract-project/refract/vk/reflection"
)

// Reasons of the Events on the VirtualNode about plugins.
const (
	pluginFailedReason      = "PluginFailed"
	pluginLoadedReason      = "PluginLoaded"
	pluginWarningReason     = "PluginWarning"
	pluginFileIgnoredReason = "PluginFileIgnored"
	pluginLeaksReason       = "PluginLeaks"
	// declaredUnavailableReason is the reason of the Event that declared plugins are not used, because this process has
	// no permission to read ReflectionPlugins.
	declaredUnavailableReason = "DeclaredPluginsUnavailable"
)

// plugins contains the plugin chains of this process and their sources.
type plugins struct {
	host     *host.Host
	registry *host.Registry
	chains   *source.Chains
	dir      *source.Dir // nil if --plugin-dir is not set
	declared *declared.Follower
	// probations contains the declared plugins that were promoted a short time ago.
	probations *reflection.Probations
	changed    chan struct{} // receives a value when the set of declared plugins has changed
	compiled   string        // subfolder of --plugin-cache-dir with compiled modules; empty without this flag
	lastGood   string
	// folderChanged is called after a change to the plugins in --plugin-dir. It may be nil.
	folderChanged atomic.Pointer[func()]
}

// loadPlugins compiles the default plugins and the modules in --plugin-dir. It runs before the first object is
// reflected, so that the plugins mutate every object.
func (k *kubelet) loadPlugins(ctx context.Context) (_ *plugins, err error) {
	p := &plugins{}
	config := host.NewConfig().WithLogger(slog.Default()).WithLeakReporter(k.reportLeak)
	if k.PluginCacheDir != "" {
		p.compiled = filepath.Join(k.PluginCacheDir, "compiled")
		p.lastGood = filepath.Join(k.PluginCacheDir, "last-good")
		config = config.WithCacheDir(p.compiled)
	}
	if p.host, err = host.New(ctx, config); err != nil {
		return nil, fmt.Errorf("starting the plugin host, %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.closeModules(ctx))
		}
	}()
	defaults, err := source.ReadFS(defaultplugins.FS)
	if err != nil {
		return nil, fmt.Errorf("reading the default plugins, %w", err)
	}
	p.registry = host.NewRegistry(func(kind string, _ host.Hook) host.Guard { return host.DefaultGuard(kind) })
	p.chains, err = source.NewChains(ctx, source.ChainsConfig{
		Host: p.host, Registry: p.registry, Kinds: chainNames(), Defaults: defaults, LastGoodDir: p.lastGood,
	})
	if err != nil || k.PluginDir == "" {
		return p, err
	}
	reportStatus := k.pluginReporter(ctx)
	p.dir, err = source.NewDir(source.DirConfig{Path: k.PluginDir, Chains: p.chains, OnStatus: func(s source.Status, removed bool) {
		reportStatus(s, removed)
		if changed := p.folderChanged.Load(); changed != nil {
			(*changed)()
		}
	}})
	if err != nil {
		return p, fmt.Errorf("--plugin-dir: %w", err)
	}
	return p, p.dir.Sync(ctx)
}

// loadDeclared loads the declared plugins before the first object is reflected. It waits for this cluster's API server.
// reachesProvider reports whether the provider is reachable, and leadsShared reports whether this virtual node reflects
// the shared kinds. They are called only while this replica is the leader.
func (k *kubelet) loadDeclared(ctx context.Context, p *plugins, reachesProvider, leadsShared func() bool) (err error) {
	p.probations, p.changed = reflection.NewProbations(clock.RealClock{}), make(chan struct{}, 1)
	p.declared, err = declared.NewFollower(declared.Options{
		Local: k.local, NodeName: k.NodeName, RemoteClusterID: k.ForeignClusterID, Chains: p.chains,
		Events: k.report.recorder, WereRead: &k.declaredWereRead, Waiting: k.ready.waitFor,
		Unavailable: func(reason string) { k.report.reportWarning(declaredUnavailableReason, reason) },
		Probations:  p.probations, ReachesProvider: reachesProvider, LeadsShared: leadsShared, Changed: p.noteChange,
		Log: slog.Default(),
	})
	if err != nil {
		return err
	}
	return p.declared.ReadPlugins(ctx)
}

// noteChange records that the candidate revisions must be read again.
func (p *plugins) noteChange() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// rehearseCandidates tests the candidate revisions of declared plugins on the objects of this virtual node. It returns
// when ctx ends.
func (a *active) rehearseCandidates(ctx context.Context) error {
	return a.plugins.declared.RunRehearsals(ctx, a.plugins.changed, func(ctx context.Context, c reflection.PluginCandidate) (*pluginsv1alpha1.PluginRehearsalResult, error) {
		return reflection.RehearsePlugin(ctx, a.reflection, c)
	})
}

// pluginReporter returns a function that reports the states of plugins in the log and as Events on the VirtualNode.
func (k *kubelet) pluginReporter(ctx context.Context) func(source.Status, bool) {
	logger := log.FromContext(ctx)
	return func(s source.Status, removed bool) {
		details := []any{"plugin", s.Name, "origin", s.Origin, "file", s.Path, "version", s.Version, "digest", s.Digest, "kinds", s.Kinds}
		switch {
		case removed && s.State == source.Ignored: // an ignored file had no effect, so its removal is not reported
		case removed:
			logger.Info("A plugin was removed", details...)
			k.report.reportNormal(pluginLoadedReason, fmt.Sprintf("Plugin %s was removed", s.Name))
		case s.State == source.Failed:
			logger.Error(s.Err, "A plugin cannot be used", append(details, "earlierVersionRuns", s.Running)...)
			k.report.reportWarning(pluginFailedReason, fmt.Sprintf("Plugin %s: %s", s.Name, s.Message))
		case s.State == source.Ignored:
			logger.Info("A file of the plugin directory is ignored", "file", s.Path, "reason", s.Message)
			k.report.reportWarning(pluginFileIgnoredReason, fmt.Sprintf("File %s of the plugin directory is %s", s.Name, s.Message))
		case len(s.Warnings) > 0:
			logger.Info("A plugin was loaded, but not everything in its manifest or options has an effect", append(details, "warnings", s.Warnings)...)
			k.report.reportWarning(pluginWarningReason, fmt.Sprintf("Plugin %s: %s", s.Name, s.Message))
		default:
			logger.Info("A plugin was loaded", details...)
			k.report.reportNormal(pluginLoadedReason, fmt.Sprintf("Plugin %s %s is in use for %v", s.Name, s.Version, s.Kinds))
		}
	}
}

func (k *kubelet) reportLeak(plugin string, err error) {
	k.report.reportWarning(pluginLeaksReason, fmt.Sprintf("Plugin %s failed in an instance that had run before and succeeded in a fresh one, so no object is affected. It keeps memory or other state from call to call: fix it, or set `fresh: true` in its options. The failure was: %v", plugin, err))
}

var (
	// pluginInfo is a metric with the running version of each plugin. It shows the progress of a rollout across all
	// virtual kubelets.
	pluginInfo = prometheus.NewDesc("refract_plugin_info",
		"1 for each plugin that is loaded, with the version and the digest of its module, its origin (default, folder or declared), and the PluginRevision of a declared one.", []string{"plugin", "version", "digest", "origin", "revision"}, nil)

	pluginHeld = prometheus.NewDesc("refract_plugin_held",
		"1 for each kind of which objects are held, neither written nor deleted, because a plugin cannot run.", []string{"plugin", "kind", "origin"}, nil)

	pluginLeaks = prometheus.NewDesc("refract_plugin_leaks_total", "Calls of a plugin that failed in an instance that had run before and succeeded in a fresh one.", []string{"plugin"}, nil)

	pluginFiles = prometheus.NewDesc("refract_plugin_files",
		"Files of the plugin directory by state: Loaded, Failed (an earlier version may run), Ignored (neither a module nor options), and Warning (loaded, but something in the manifest or options has no effect).", []string{"state"}, nil)

	pluginCacheFailures = prometheus.NewDesc("refract_plugin_cache_failures_total",
		"How often a folder of the plugin cache could not be used as it was: damaged, unreadable, full or read-only.", []string{"folder"}, nil)
)

// Describe implements prometheus.Collector.
func (p *plugins) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{pluginInfo, pluginHeld, pluginLeaks, pluginFiles, pluginCacheFailures} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (p *plugins) Collect(metrics chan<- prometheus.Metric) {
	statuses := p.statuses()
	collectHeld(metrics, statuses)
	// Collect must not send two series with equal labels, because then the whole scrape would fail.
	collected := map[[5]string]bool{}
	leaks := map[string]int64{}
	for _, plugin := range p.chains.Plugins() {
		leaks[plugin.Name()] += plugin.Leaks()
		origin, revision := originOf(plugin, statuses)
		series := [5]string{plugin.Name(), plugin.Version(), plugin.Digest(), string(origin), revision}
		if collected[series] {
			continue
		}
		collected[series] = true
		metrics <- prometheus.MustNewConstMetric(pluginInfo, prometheus.GaugeValue, 1, series[:]...)
	}
	for name, count := range leaks {
		metrics <- prometheus.MustNewConstMetric(pluginLeaks, prometheus.CounterValue, float64(count), name)
	}
	if p.dir != nil {
		for state, count := range countFiles(p.dir.Statuses()) {
			metrics <- prometheus.MustNewConstMetric(pluginFiles, prometheus.GaugeValue, float64(count), state)
		}
	}
	if p.compiled != "" {
		metrics <- prometheus.MustNewConstMetric(pluginCacheFailures, prometheus.CounterValue, float64(p.host.CacheFailures()), p.compiled)
		metrics <- prometheus.MustNewConstMetric(pluginCacheFailures, prometheus.CounterValue, float64(p.chains.LastGoodFailures()), p.lastGood)
	}
}

// statuses returns the statuses of all plugins except the default ones.
func (p *plugins) statuses() (all []source.Status) {
	if p.dir != nil {
		all = append(all, p.dir.Statuses()...)
	}
	if p.declared != nil {
		all = append(all, p.declared.Statuses()...)
	}
	return all
}

// originOf returns the origin of a loaded plugin and, for a declared plugin, its revision.
func originOf(plugin *host.Plugin, statuses []source.Status) (origin source.Origin, revision string) {
	for i := range statuses {
		if s := &statuses[i]; s.Name == plugin.Name() && s.Digest == plugin.Digest() {
			return s.Origin, s.Revision
		}
	}
	return source.OriginDefault, ""
}

func collectHeld(metrics chan<- prometheus.Metric, statuses []source.Status) {
	for i := range statuses {
		for _, kind := range statuses[i].Held {
			metrics <- prometheus.MustNewConstMetric(pluginHeld, prometheus.GaugeValue, 1, statuses[i].Name, kind, string(statuses[i].Origin))
		}
	}
}

// countFiles counts the plugin files by state. A state without files gets the count 0 instead of being omitted, because
// an alert never fires if its series is missing.
func countFiles(statuses []source.Status) map[string]int {
	counts := map[string]int{string(source.Loaded): 0, string(source.Failed): 0, string(source.Ignored): 0, "Warning": 0}
	for _, s := range statuses {
		counts[string(s.State)]++
		if len(s.Warnings) > 0 {
			counts["Warning"]++
		}
	}
	return counts
}

// describeFolder returns the plugins in --plugin-dir in the form in which the Node describes them.
func (p *plugins) describeFolder() (found []folderplugins.Plugin) {
	if p.dir == nil {
		return nil
	}
	for _, s := range p.dir.Statuses() {
		if s.State != source.Ignored {
			found = append(found, folderplugins.Plugin{
				Name: s.Name, State: string(s.State), IsRunning: s.Running, Version: s.Version, Kinds: s.Kinds, Hooks: s.Hooks,
				Priority: int32(s.Priority), Replaces: s.Replaces, Held: s.Held,
			})
		}
	}
	return found
}

// watchFolder applies changes in the plugin folder until ctx ends.
func (p *plugins) watchFolder(ctx context.Context) error {
	if p.dir == nil {
		return nil
	}
	return p.dir.Run(ctx)
}

// closeModules waits for running calls of plugins, and then frees all modules.
func (p *plugins) closeModules(ctx context.Context) error {
	var err error
	if p.declared != nil {
		p.declared.Close()
	}
	if p.chains != nil {
		err = p.chains.Close(ctx)
	}
	return errors.Join(err, p.host.Close(ctx))
}

// chainNames returns the names of the plugin chains of all kinds that are reflected by default.
func chainNames() (names []string) {
	for _, kind := range reflection.DefaultKinds() {
		if !kind.Chain.None {
			names = append(names, kind.Name)
		}
	}
	return names
}
