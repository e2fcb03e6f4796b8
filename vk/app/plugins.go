// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/source"
	defaultplugins "github.com/refract-project/refract/plugins"
	"github.com/refract-project/refract/vk/reflection"
)

// Reasons of the Events on the VirtualNode about plugins.
const (
	pluginFailedReason      = "PluginFailed"
	pluginLoadedReason      = "PluginLoaded"
	pluginWarningReason     = "PluginWarning"
	pluginFileIgnoredReason = "PluginFileIgnored"
	pluginLeaksReason       = "PluginLeaks"
)

// plugins holds the plugin chains of this process and their sources.
type plugins struct {
	host     *host.Host
	registry *host.Registry
	chains   *source.Chains
	dir      *source.Dir // nil unless --plugin-dir is set
	compiled string      // subfolder of --plugin-cache-dir, empty without that flag
	lastGood string
}

// loadPlugins compiles the default plugins and the modules in --plugin-dir before the first object is reflected, so
// that all of them mutate it.
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
	p.dir, err = source.NewDir(source.DirConfig{Path: k.PluginDir, Chains: p.chains, OnStatus: k.pluginReporter(ctx)})
	if err != nil {
		return p, fmt.Errorf("--plugin-dir: %w", err)
	}
	return p, p.dir.Sync(ctx)
}

// pluginReporter returns a function that reports the states of plugins in the log and by Events on the VirtualNode.
func (k *kubelet) pluginReporter(ctx context.Context) func(source.Status, bool) {
	logger := log.FromContext(ctx)
	return func(s source.Status, removed bool) {
		details := []any{"plugin", s.Name, "file", s.Path, "version", s.Version, "digest", s.Digest, "kinds", s.Kinds}
		switch {
		case removed && s.State == source.Ignored: // an ignored file had no effect
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
	// pluginInfo reports the running version of each plugin, so that a rollout can be followed over all virtual
	// kubelets.
	pluginInfo = prometheus.NewDesc("refract_plugin_info", "1 for each plugin that is loaded, with the version and the digest of its module.", []string{"plugin", "version", "digest"}, nil)

	pluginLeaks = prometheus.NewDesc("refract_plugin_leaks_total", "Calls of a plugin that failed in an instance that had run before and succeeded in a fresh one.", []string{"plugin"}, nil)

	pluginFiles = prometheus.NewDesc("refract_plugin_files",
		"Files of the plugin directory by state: Loaded, Failed (an earlier version may run), Ignored (neither a module nor options), and Warning (loaded, but something in the manifest or options has no effect).", []string{"state"}, nil)

	pluginCacheFailures = prometheus.NewDesc("refract_plugin_cache_failures_total",
		"How often a folder of the plugin cache could not be used as it was: damaged, unreadable, full or read-only.", []string{"folder"}, nil)
)

// Describe implements prometheus.Collector.
func (p *plugins) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{pluginInfo, pluginLeaks, pluginFiles, pluginCacheFailures} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (p *plugins) Collect(metrics chan<- prometheus.Metric) {
	collected := map[[3]string]bool{} // a duplicate series would fail the whole scrape
	leaks := map[string]int64{}
	for _, plugin := range p.chains.Plugins() {
		leaks[plugin.Name()] += plugin.Leaks()
		series := [3]string{plugin.Name(), plugin.Version(), plugin.Digest()}
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

// countFiles counts the files by state. It includes states without files: an alert on a missing series never fires.
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

// watchFolder applies changes of the plugin folder until ctx ends.
func (p *plugins) watchFolder(ctx context.Context) error {
	if p.dir == nil {
		return nil
	}
	return p.dir.Run(ctx)
}

// closeModules waits for running calls and frees all modules.
func (p *plugins) closeModules(ctx context.Context) error {
	var err error
	if p.chains != nil {
		err = p.chains.Close(ctx)
	}
	return errors.Join(err, p.host.Close(ctx))
}

// chainNames returns the names of the chains of all kinds that are reflected by default.
func chainNames() (names []string) {
	for _, kind := range reflection.DefaultKinds() {
		if !kind.Chain.None {
			names = append(names, kind.Name)
		}
	}
	return names
}
