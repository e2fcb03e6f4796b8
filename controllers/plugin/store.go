// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/internal/pluginrevision"
	"github.com/refract-project/refract/internal/pluginsource"
)

// revisionSpec returns the spec of the revision of a module, without the fields that are derived from the module.
func revisionSpec(p *plugins.ReflectionPlugin, m *module) (plugins.PluginRevisionSpec, error) {
	name, err := sourceName(p.Spec.Source)
	return plugins.PluginRevisionSpec{
		Plugin: p.Name, SHA256: m.digest, PolicyName: name, Signer: m.signer, PluginSettings: p.Spec.PluginSettings,
	}, err
}

// contentOf returns a digest of the fields that identify a revision: the module, its signer, its name in the policy of signatures, and the settings. It does
// not depend on the formatting of the configuration or on differences that the API server does not store, such as an empty and an absent list of
// capabilities.
func contentOf(spec *plugins.PluginRevisionSpec) string {
	config, err := pluginrevision.DecodeConfig(spec.Config)
	if err != nil {
		config = map[string]any{"": string(spec.Config.Raw)} // such a revision is refused
	}
	stored := plugins.PluginRevisionSpec{SHA256: spec.SHA256, PolicyName: spec.PolicyName, Signer: spec.Signer, PluginSettings: *spec.PluginSettings.DeepCopy()}
	stored.Config = nil
	for _, set := range [][]string{stored.Kinds, stored.Writes} {
		slices.Sort(set)
	}
	slices.Sort(stored.Capabilities)
	text, _ := json.Marshal([]any{config, stored}) // this cannot fail, because both were decoded from JSON
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// revisionNameDigits is the number of digits of the content in the name of a revision.
const revisionNameDigits = 8

func revisionName(spec *plugins.PluginRevisionSpec) string {
	return spec.Plugin + "-" + contentOf(spec)[:revisionNameDigits]
}

// existingRevision returns the revision of a module with the settings of the plugin, or nil if it does not exist yet.
func (c *Controller) existingRevision(ctx context.Context, p *plugins.ReflectionPlugin, m *module) (*plugins.PluginRevision, error) {
	spec, err := revisionSpec(p, m)
	if err != nil {
		return nil, err
	}
	revision := &plugins.PluginRevision{}
	name := revisionName(&spec)
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, revision); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	switch {
	case !metav1.IsControlledBy(revision, p) || revision.DeletionTimestamp != nil:
		return nil, fmt.Errorf("PluginRevision %s is of a ReflectionPlugin that was deleted, waiting until it is deleted, too", name)
	case contentOf(&revision.Spec) != contentOf(&spec):
		return nil, refusef(revisionTakenReason, "PluginRevision %s has another content: change spec.config, or rename the plugin", name)
	}
	return revision, nil
}

// createRevision stores the module, then creates its revision.
func (c *Controller) createRevision(ctx context.Context, p *plugins.ReflectionPlugin, m *module, wasm []byte, manifest *host.Manifest) (*plugins.PluginRevision, error) {
	c.storing.Lock()
	defer c.storing.Unlock()
	parts, err := c.storeModule(ctx, m.digest, wasm)
	if err != nil {
		c.unused.Store(true)
		return nil, err
	}
	spec, err := revisionSpec(p, m)
	if err != nil {
		return nil, err
	}
	revision := &plugins.PluginRevision{Spec: spec}
	revision.Name = revisionName(&revision.Spec)
	isController := true
	revision.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: plugins.GroupVersion.String(), Kind: plugins.ReflectionPluginKind, Name: p.Name, UID: p.UID, Controller: &isController,
	}}
	if revision.Spec.Number, err = c.nextNumber(ctx, p); err != nil {
		return nil, err
	}
	revision.Spec.Size, revision.Spec.Parts = int64(len(wasm)), int32(parts)
	revision.Spec.Source = m.resolved
	revision.Spec.Manifest = plugins.PluginManifest{
		Name: manifest.Name, Version: manifest.Version, Kinds: manifest.Kinds, Hooks: manifest.Hooks, Writes: manifest.Writes, Capabilities: manifest.Capabilities,
	}
	if err := c.client.Create(ctx, revision); err != nil {
		c.unused.Store(true)
		return nil, fmt.Errorf("creating PluginRevision %s, %w", revision.Name, err)
	}
	return revision, nil
}

// repairModule stores the module of a revision again if parts of it are missing. It returns errNotStored if the module
// must be fetched first. It checks the parts at most once per Recheck, because each report of a virtual node triggers a
// reconciliation.
func (c *Controller) repairModule(ctx context.Context, p *plugins.ReflectionPlugin, m *module, revision *plugins.PluginRevision) error {
	if at, ok := c.checked.Load(revision.Spec.SHA256); ok && c.options.Clock.Since(at.(time.Time)) < c.options.Recheck {
		return nil
	}
	isStored, err := c.isStored(ctx, revision)
	if err != nil || isStored {
		return err
	}
	wasm := c.fetched.find(p.Name, m.digest)
	if wasm == nil {
		return errNotStored
	}
	c.storing.Lock()
	defer c.storing.Unlock()
	_, err = c.storeModule(ctx, m.digest, wasm)
	return err
}

// isStored reports whether all parts of the module of a revision exist. Their content is checked only once, because it
// is immutable.
func (c *Controller) isStored(ctx context.Context, revision *plugins.PluginRevision) (bool, error) {
	digest := revision.Spec.SHA256
	if _, ok := c.checked.Load(digest); !ok {
		_, err := c.readModule(ctx, digest)
		if errors.Is(err, errNotStored) {
			return false, nil
		}
		return err == nil, err
	}
	for part := range int(revision.Spec.Parts) {
		module := &metav1.PartialObjectMetadata{}
		module.SetGroupVersionKind(plugins.GroupVersion.WithKind("PluginModule"))
		name := plugins.PluginModuleName(digest, part)
		if err := c.live.Get(ctx, client.ObjectKey{Name: name}, module); err != nil {
			c.checked.Delete(digest)
			if apierrors.IsNotFound(err) { // it may have been stored again, in fewer parts
				_, err := c.readModule(ctx, digest)
				if errors.Is(err, errNotStored) {
					return false, nil
				}
				return err == nil, err
			}
			return false, fmt.Errorf("getting PluginModule %s, %w", name, err)
		}
	}
	c.checked.Store(digest, c.options.Clock.Now())
	return true, nil
}

// nextNumber returns the number of the next revision of a plugin. It does not read from the cache, which may lack the last revision.
func (c *Controller) nextNumber(ctx context.Context, p *plugins.ReflectionPlugin) (int64, error) {
	all := &plugins.PluginRevisionList{}
	if err := c.live.List(ctx, all); err != nil {
		return 0, fmt.Errorf("listing PluginRevisions, %w", err)
	}
	next := int64(1)
	for i := range all.Items {
		if metav1.IsControlledBy(&all.Items[i], p) {
			next = max(next, all.Items[i].Spec.Number+1)
		}
	}
	return next, nil
}

// storeModule creates the parts of a module, and returns their number. Existing parts are kept if they contain the module.
func (c *Controller) storeModule(ctx context.Context, digest string, wasm []byte) (parts int, err error) {
	if _, err := c.readModule(ctx, digest); err == nil {
		first := &plugins.PluginModule{}
		err := c.live.Get(ctx, client.ObjectKey{Name: plugins.PluginModuleName(digest, 0)}, first)
		return int(first.Spec.Parts), err
	}
	modules, err := pluginrevision.SplitModule(wasm, digest)
	if err != nil {
		return 0, err
	}
	for _, module := range modules {
		if err := c.replaceModule(ctx, module); err != nil {
			return 0, err
		}
	}
	return len(modules), nil
}

// replaceModule creates a part, and replaces a damaged one.
func (c *Controller) replaceModule(ctx context.Context, module *plugins.PluginModule) error {
	err := c.client.Create(ctx, module)
	if apierrors.IsAlreadyExists(err) {
		if err := c.client.Delete(ctx, &plugins.PluginModule{ObjectMeta: metav1.ObjectMeta{Name: module.Name}}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting the damaged PluginModule %s, %w", module.Name, err)
		}
		err = c.client.Create(ctx, module)
	}
	if err != nil {
		return fmt.Errorf("creating PluginModule %s, %w", module.Name, err)
	}
	return nil
}

// readModule returns a stored module. It returns errNotStored if parts are missing, or if the content does not have the
// digest.
func (c *Controller) readModule(ctx context.Context, digest string) ([]byte, error) {
	wasm, err := pluginrevision.ReadModule(ctx, func(ctx context.Context, name string) (*plugins.PluginModule, error) {
		module := &plugins.PluginModule{}
		return module, c.live.Get(ctx, client.ObjectKey{Name: name}, module)
	}, digest, pluginsource.MaxModuleBytes)
	var (
		missing *pluginrevision.MissingError
		damaged *pluginrevision.DamagedError
	)
	switch {
	case errors.As(err, &missing):
		return nil, errNotStored
	case errors.As(err, &damaged):
		c.checked.Delete(digest)
		log.FromContext(ctx).Info("A stored module is damaged, fetching it again", "module", damaged.Module, "err", err)
		return nil, errNotStored
	case err != nil:
		return nil, err
	}
	c.checked.Store(digest, c.options.Clock.Now())
	return wasm, nil
}
