// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/internal/pluginrevision"
	"github.com/refract-project/refract/internal/printable"
	defaults "github.com/refract-project/refract/plugins"
)

// accept checks a module and the settings of the plugin, and returns their revision.
func (c *Controller) accept(ctx context.Context, p *plugins.ReflectionPlugin, m *module) (*plugins.PluginRevision, error) {
	if err := checkSettings(p); err != nil {
		return nil, err
	}
	// The name of an active plugin is not checked again. If it were, a single virtual kubelet could block updates to
	// the plugin for all others.
	if p.Status.ActiveRevision == "" {
		nodes, err := listVirtualNodes(ctx, c.client)
		if err != nil {
			return nil, err
		}
		if err := checkFolders(p, nodes); err != nil {
			return nil, err
		}
	}
	revision, err := c.existingRevision(ctx, p, m)
	if err != nil {
		return nil, err
	}
	if m.isFresh() {
		c.fetched.keep(p.Name, m)
	}
	if revision == nil {
		revision, err = c.newRevision(ctx, p, m)
	} else {
		err = c.repairModule(ctx, p, m, revision)
	}
	var refused *refusal
	if err == nil || errors.As(err, &refused) {
		c.fetched.drop(p.Name)
	}
	if err != nil {
		return nil, err
	}
	return revision, c.checkKinds(p.Spec.Kinds, &revision.Spec.Manifest)
}

// verdict records that a module was not accepted.
type verdict struct {
	plugin     types.UID
	generation int64
	digest     string
	err        error
}

// newRevision loads the module with the settings, and stores it. A refused module is loaded again only if the module or the plugin has changed.
func (c *Controller) newRevision(ctx context.Context, p *plugins.ReflectionPlugin, m *module) (*plugins.PluginRevision, error) {
	if last, ok := c.refused.Load(p.Name); ok {
		if v := last.(verdict); v.plugin == p.UID && v.generation == p.Generation && v.digest == m.digest {
			return nil, v.err
		}
	}
	wasm := c.fetched.find(p.Name, m.digest)
	if wasm == nil {
		var err error
		if wasm, err = c.readModule(ctx, m.digest); err != nil {
			return nil, err
		}
	}
	manifest, err := c.load(ctx, p, wasm)
	var refused *refusal
	if errors.As(err, &refused) {
		c.refused.Store(p.Name, verdict{p.UID, p.Generation, m.digest, err})
	}
	if err != nil {
		return nil, err
	}
	c.refused.Delete(p.Name)
	return c.createRevision(ctx, p, m, wasm, manifest)
}

// load loads a module with the settings of the plugin, as a virtual kubelet does, and returns its manifest.
func (c *Controller) load(ctx context.Context, p *plugins.ReflectionPlugin, wasm []byte) (*host.Manifest, error) {
	options, err := pluginrevision.DecodeOptions(&p.Spec.PluginSettings)
	if err != nil {
		return nil, refusef(invalidConfigReason, "spec.config: %v: %s", err, remediesOfStages[host.StageConfig])
	}
	manifest, err := c.loader.load(ctx, p.Name, wasm, options.PluginConfig())
	if err != nil {
		return nil, refuseModule(err)
	}
	for _, path := range p.Spec.Writes {
		if !manifest.MayWrite(path) {
			return nil, refusef(writesNotAllowedReason,
				"spec.writes: the module does not write %s, it declares %s: remove the path, or use a module that declares it",
				path, listOrNothing(manifest.Writes))
		}
	}
	for _, capability := range manifest.Capabilities {
		if !slices.Contains(p.Spec.Capabilities, plugins.PluginCapability(capability)) {
			return nil, refusef(capabilityReason, "spec.capabilities: the module asks for %q, which lets it remove objects from providers: add it if you agree", capability)
		}
	}
	return manifest, nil
}

// refuseModule returns the refusal of a module that the host did not load, or err itself if the machine is the cause.
func refuseModule(err error) error {
	var failed *host.LoadError
	if host.IsTransient(err) || !errors.As(err, &failed) {
		return err
	}
	// The message of a condition is shortened at its end, where the remedy is. A stack trace can be longer than that.
	cause := printable.Shorten(printable.Line(err.Error()), maxMessage/2)
	return refusef(reasonsOfStages[failed.Stage], "%s: %s", cause, remediesOfStages[failed.Stage])
}

// reasonsOfStages contains the reason of the condition Accepted for each stage of loading a module.
var reasonsOfStages = map[host.Stage]string{
	host.StageSize:       "ModuleTooLarge",
	host.StageInstrument: "InvalidModule",
	host.StageCompile:    "InvalidModule",
	host.StageImports:    "UnknownImports",
	host.StageExports:    "InvalidExports",
	host.StageStart:      "StartFailed",
	host.StageVersion:    "WrongABIVersion",
	host.StageManifest:   "InvalidManifest",
	host.StageConfig:     invalidConfigReason,
}

// remediesOfStages contains the remedy for a module that fails at each stage of loading it.
var remediesOfStages = map[host.Stage]string{
	host.StageSize:       "raise spec.limits.moduleBytes, or compile the module with -opt=z and -no-debug",
	host.StageInstrument: "publish a WebAssembly module, and not compressed",
	host.StageCompile:    "build the module again, and compare with what refractctl plugin inspect says about the file",
	host.StageImports:    "build the module with the SDK of this version of Refract, or with an Extism PDK, and without other imports",
	host.StageExports:    "build the module with the SDK or with an Extism PDK, as a reactor (-buildmode=c-shared)",
	host.StageStart:      "correct what the module does before main, or raise spec.limits; refractctl plugin inspect shows what it logs",
	host.StageVersion:    "build the module with the SDK of this version of Refract",
	host.StageManifest:   "correct the manifest of the module",
	host.StageConfig:     "correct the field, refractctl plugin inspect shows the schema of the module",
}

// checkSettings checks the settings that do not depend on the module.
func checkSettings(p *plugins.ReflectionPlugin) error {
	if match := p.Spec.Match; match != nil {
		for _, selector := range []struct {
			field string
			value *metav1.LabelSelector
		}{{"namespaceSelector", match.NamespaceSelector}, {"objectSelector", match.ObjectSelector}} {
			if _, err := metav1.LabelSelectorAsSelector(selector.value); err != nil {
				return refusef(invalidSelectorReason, "spec.match.%s: %v: correct the selector", selector.field, err)
			}
		}
	}
	names := defaultPlugins()
	switch {
	case p.Spec.Replaces != "" && !slices.Contains(names, p.Spec.Replaces):
		return refusef(unknownDefaultReason, "spec.replaces: there is no default plugin %q: name one of %s, or remove the field",
			p.Spec.Replaces, strings.Join(names, ", "))
	case slices.Contains(names, p.Name) && p.Spec.Replaces != p.Name:
		return refusef(nameTakenReason, "metadata.name: %s is also the name of a default plugin: use another name, or set spec.replaces to %s", p.Name, p.Name)
	}
	return nil
}

// defaultPlugins returns the names of the default plugins.
func defaultPlugins() []string {
	modules, err := fs.Glob(defaults.FS, "*/*.wasm")
	if err != nil {
		panic(err) // this cannot happen, because the pattern is valid
	}
	for i, module := range modules {
		modules[i] = strings.TrimSuffix(path.Base(module), ".wasm")
	}
	return modules
}

// checkKinds checks that the module supports the kinds, and that this cluster serves them.
func (c *Controller) checkKinds(kinds []string, manifest *plugins.PluginManifest) error {
	options := source.Options{Kinds: kinds}
	declared := &host.Manifest{Kinds: manifest.Kinds, Hooks: manifest.Hooks}
	for _, kind := range kinds {
		if kind == "*" && slices.Contains(manifest.Kinds, "*") {
			continue
		}
		meant := kindsMeant(kind, options, declared)
		if len(meant) == 0 {
			return refuseKind(kind, manifest)
		}
		if served, err := c.isServed(meant); err != nil || !served {
			if err == nil {
				named := kind
				if kind == "*" {
					named = strings.Join(manifest.Kinds, ", ")
				}
				err = refusef(unknownKindReason, "spec.kinds: this cluster does not serve %s: install its CustomResourceDefinition, "+
					"or name the kind with its API group, as in Ingress.networking.k8s.io", named)
			}
			return err
		}
	}
	return nil
}

// refuseKind returns the refusal of an entry of spec.kinds that matches none of the module's kinds. "*" is refused for a
// module that is only for Secrets. If it were accepted, the plugin would be ready, but Secrets would cross without it.
func refuseKind(kind string, manifest *plugins.PluginManifest) error {
	if kind == "*" {
		return refusef(kindNotDeclaredReason, "spec.kinds: * does not include Secrets, and the module is only for %s: name Secret instead",
			listOrNothing(manifest.Kinds))
	}
	return refusef(kindNotDeclaredReason, "spec.kinds: the module is not for %s, it is for %s: remove the kind, or use a module for it",
		kind, listOrNothing(manifest.Kinds))
}

// describeLeftOut names kinds of the module that "*" in spec.kinds does not include. It returns an empty text if there are none.
func describeLeftOut(kinds []string, manifest *plugins.PluginManifest) string {
	if slices.Contains(kinds, "*") && slices.Contains(manifest.Kinds, "Secret") && !slices.Contains(kinds, "Secret") {
		return `; "*" in spec.kinds does not include Secrets: add Secret to run the module on them as well`
	}
	return ""
}

// kindsMeant returns the kinds of the module that an entry of spec.kinds matches.
func kindsMeant(entry string, options source.Options, manifest *host.Manifest) (meant []schema.GroupKind) {
	for _, candidate := range append([]string{entry}, manifest.Kinds...) {
		name, group, _ := strings.Cut(candidate, ".")
		if candidate == "*" || !host.MatchesKind([]string{entry}, name, group) {
			continue
		}
		if options.MatchesManifest(manifest, candidate, host.Outgoing) || options.MatchesManifest(manifest, candidate, host.Incoming) {
			meant = append(meant, schema.GroupKind{Group: group, Kind: name})
		}
	}
	return meant
}

// isServed reports whether this cluster serves one of the kinds.
func (c *Controller) isServed(kinds []schema.GroupKind) (bool, error) {
	for _, kind := range kinds {
		_, err := c.options.Mapper.RESTMapping(kind)
		if err == nil {
			return true, nil
		}
		if !apimeta.IsNoMatchError(err) {
			return false, fmt.Errorf("looking for the kind %s, %w", kind, err)
		}
	}
	return false, nil
}

func listOrNothing(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}
