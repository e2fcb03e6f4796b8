// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/plugins"
)

// trialChains contains the plugin chains for the kinds of some objects, composed as in a virtual kubelet.
type trialChains struct {
	host     *host.Host
	registry *host.Registry
	chains   *source.Chains
	modules  []source.Module // the modules of the command line
	hook     host.Hook
	warnings []pluginWarning // warnings from loading the modules
}

// pluginWarning is a warning about an option or a declaration that has no effect.
type pluginWarning struct{ plugin, text string }

// newTrialChains loads modules for the kinds. If defaults is true, the default plugins of the kinds run, too.
func newTrialChains(ctx context.Context, modules []source.Module, kinds []string, hook host.Hook, defaults bool) (c *trialChains, err error) {
	all, err := source.ReadFS(plugins.FS)
	if err != nil {
		return nil, fmt.Errorf("reading the default plugins, %w", err)
	}
	for i := range modules {
		if err := modules[i].Options.CheckReplaces(all); err != nil {
			return nil, fmt.Errorf("%s is not a usable plugin, %w", modules[i].Path, err)
		}
		if !defaults {
			modules[i].Options.Replaces = ""
		}
	}
	if !defaults {
		all = nil
	}
	h, err := newHost(ctx)
	if err != nil {
		return nil, err
	}
	c = &trialChains{host: h, registry: host.NewRegistry(nil), modules: modules, hook: hook}
	defer func() {
		if err != nil {
			_ = c.closeHost(ctx)
		}
	}()
	config := source.ChainsConfig{Host: h, Registry: c.registry, Kinds: kinds, Defaults: neededDefaults(all, modules, kinds)}
	if c.chains, err = source.NewChains(ctx, config); err != nil {
		return nil, err
	}
	for _, status := range c.chains.Apply(ctx, modules) {
		if status.Err != nil {
			err = errors.Join(err, fmt.Errorf("%s is not a usable plugin, %w", status.Path, status.Err))
		}
		for _, text := range status.Warnings {
			c.warnings = append(c.warnings, pluginWarning{status.Name, text})
		}
	}
	return c, err
}

// neededDefaults returns the default plugins of the kinds, and the default plugins that one of the modules replaces.
// Other default plugins do not have to be compiled.
func neededDefaults(all, modules []source.Module, kinds []string) []source.Module {
	var names []string
	for _, kind := range kinds {
		name, _ := plugins.Default(kind)
		names = append(names, name)
	}
	for _, module := range modules {
		names = append(names, module.Options.Replaces, module.Name)
	}
	return slices.DeleteFunc(all, func(m source.Module) bool { return !slices.Contains(names, m.Name) })
}

// pluginOf returns the loaded plugin of a module.
func (c *trialChains) pluginOf(module source.Module) *host.Plugin {
	for _, plugin := range slices.Backward(c.chains.Plugins()) { // backwards, because default plugins come before declared plugins
		if plugin.Name() == module.Name {
			return plugin
		}
	}
	return nil
}

// unmatchedReason returns the reason why a module does not run on objects of a kind, or "" if it runs.
func (c *trialChains) unmatchedReason(module source.Module, kind string) string {
	manifest := c.pluginOf(module).Manifest()
	switch {
	case !slices.Contains(manifest.Hooks, c.hook.String()):
		return fmt.Sprintf("plugin %s has no hook %s: its manifest says %q", module.Name, c.hook, manifest.Hooks)
	case module.Options.Matches(manifest, kind, c.hook):
		return ""
	case module.Options.Kinds != nil && module.Options.MatchesManifest(manifest, kind, c.hook):
		return fmt.Sprintf("plugin %s is not for the kind %s: its options in %s restrict it to %q",
			module.Name, kind, strings.TrimSuffix(filepath.Base(module.Path), ".wasm")+".yaml", module.Options.Kinds)
	}
	return fmt.Sprintf("plugin %s is not for the kind %s: its manifest says %q", module.Name, kind, manifest.Kinds)
}

// runChain runs the chain of a kind on an object, and then the guard of the virtual kubelet.
func (c *trialChains) runChain(ctx context.Context, kind string, object map[string]any, env *host.Env) (*document.Document, *host.Outcome, error) {
	doc := document.New()
	doc.Reset(object)
	outcome, err := c.registry.Chain(kind, c.hook).Run(ctx, doc, env)
	return doc, outcome, err
}

func (c *trialChains) closeHost(ctx context.Context) error {
	return c.host.Close(context.WithoutCancel(ctx))
}

// kindOf returns the kind of an object. Unless the kind is in the core group, it includes the API group.
func kindOf(object map[string]any) (string, error) {
	apiVersion, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	if kind == "" {
		return "", errors.New("--filename: the object has no kind: use a whole object, with apiVersion, kind and metadata")
	}
	if group, _, grouped := strings.Cut(apiVersion, "/"); grouped {
		kind += "." + group
	}
	return kind, nil
}
