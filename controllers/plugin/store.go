// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/internal/pluginsource"
)

// maxPartBytes of a PluginModule: in base64 and with its metadata it stays below the 1.5 MiB that etcd takes.
const maxPartBytes = 900_000

// revisionSpec returns what a revision of the plugin is of that module, without what follows from the module.
func revisionSpec(p *plugins.ReflectionPlugin, m *module) (plugins.PluginRevisionSpec, error) {
	name, err := sourceName(p.Spec.Source)
	return plugins.PluginRevisionSpec{
		Plugin: p.Name, SHA256: m.digest, PolicyName: name, Signer: m.signer, Config: p.Spec.Config, Writes: p.Spec.Writes, Capabilities: p.Spec.Capabilities, Limits: p.Spec.Limits,
	}, err
}

// contentOf returns what identifies a revision: the module, what the policy of signatures goes by, and the settings that it was loaded with. Two texts
// of the same configuration are equal, and so is what the API server stores in the same way, such as an empty list of capabilities and none.
func contentOf(spec *plugins.PluginRevisionSpec) string {
	config, err := decodeConfig(spec.Config)
	if err != nil {
		config = map[string]any{"": string(spec.Config.Raw)} // it is refused
	}
	stored := plugins.PluginRevisionSpec{
		SHA256: spec.SHA256, PolicyName: spec.PolicyName, Signer: spec.Signer, Writes: spec.Writes, Capabilities: spec.Capabilities, Limits: spec.Limits,
	}
	text, _ := json.Marshal([]any{config, stored}) // they came as JSON
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// revisionNameDigits of the content are in the name of a revision.
const revisionNameDigits = 8

func revisionName(spec *plugins.PluginRevisionSpec) string {
	return spec.Plugin + "-" + contentOf(spec)[:revisionNameDigits]
}

// existingRevision returns the revision of a module with the settings of the plugin, nil if there is none.
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

// createRevision stores the module, and then its revision.
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

// lastFetched returns the module with the digest if it was fetched, and neither stored nor refused yet; nil otherwise.
func (c *Controller) lastFetched(p *plugins.ReflectionPlugin, digest string) []byte {
	if last, ok := c.fetched.Load(p.Name); ok && last.(*module).digest == digest {
		return last.(*module).wasm
	}
	return nil
}

// repairModule stores the module of a revision again if it is not there as a whole. It returns errNotStored if the module has to be fetched for that.
func (c *Controller) repairModule(ctx context.Context, p *plugins.ReflectionPlugin, m *module, revision *plugins.PluginRevision) error {
	isStored, err := c.isStored(ctx, revision)
	if err != nil || isStored {
		return err
	}
	wasm := c.lastFetched(p, m.digest)
	if wasm == nil {
		return errNotStored
	}
	c.storing.Lock()
	defer c.storing.Unlock()
	_, err = c.storeModule(ctx, m.digest, wasm)
	return err
}

// isStored reports whether all parts of the module of a revision are there. Their content, which is never changed, is checked once.
func (c *Controller) isStored(ctx context.Context, revision *plugins.PluginRevision) (bool, error) {
	digest := revision.Spec.SHA256
	if _, ok := c.checked.Load(digest); !ok {
		_, err := c.readModule(ctx, digest)
		if errors.Is(err, errNotStored) {
			return false, nil
		}
		return err == nil, err
	}
	modules, err := c.listModules(ctx)
	if err != nil {
		return false, err
	}
	for part := range int(revision.Spec.Parts) {
		name := plugins.PluginModuleName(digest, part)
		if !slices.ContainsFunc(modules.Items, func(m metav1.PartialObjectMetadata) bool { return m.Name == name }) {
			c.checked.Delete(digest)
			return false, nil
		}
	}
	return true, nil
}

// nextNumber returns the number of the next revision of a plugin. It reads past the cache, which may not have the last one.
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

// storeModule creates the parts of a module, and returns their number. Parts that are there already are kept if the module they make is this one.
func (c *Controller) storeModule(ctx context.Context, digest string, wasm []byte) (parts int, err error) {
	if _, err := c.readModule(ctx, digest); err == nil {
		first := &plugins.PluginModule{}
		err := c.live.Get(ctx, client.ObjectKey{Name: plugins.PluginModuleName(digest, 0)}, first)
		return int(first.Spec.Parts), err
	}
	packed, err := compress(wasm)
	if err != nil {
		return 0, err
	}
	chunks := slices.Collect(slices.Chunk(packed, maxPartBytes))
	for part, data := range chunks {
		module := &plugins.PluginModule{Spec: plugins.PluginModuleSpec{SHA256: digest, Parts: int32(len(chunks)), Part: int32(part), Data: data}}
		module.Name = plugins.PluginModuleName(digest, part)
		if err := c.replaceModule(ctx, module); err != nil {
			return 0, err
		}
	}
	return len(chunks), nil
}

// replaceModule creates a part in the place of one that is damaged.
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

// readModule returns a stored module, or errNotStored if it is not there as a whole, or not the one of that digest.
func (c *Controller) readModule(ctx context.Context, digest string) ([]byte, error) {
	var packed bytes.Buffer
	for part, parts := 0, 1; part < parts; part++ {
		module := &plugins.PluginModule{}
		name := plugins.PluginModuleName(digest, part)
		if err := c.live.Get(ctx, client.ObjectKey{Name: name}, module); err != nil {
			if apierrors.IsNotFound(err) {
				return nil, errNotStored
			}
			return nil, fmt.Errorf("getting PluginModule %s, %w", name, err)
		}
		parts = int(module.Spec.Parts)
		packed.Write(module.Spec.Data)
	}
	wasm, err := decompress(&packed)
	if err == nil {
		err = pluginsource.CheckDigest(wasm, digest)
	}
	if err != nil {
		c.checked.Delete(digest)
		log.FromContext(ctx).Info("A stored module is damaged, fetching it again", "module", plugins.PluginModuleName(digest, 0), "err", err)
		return nil, errNotStored
	}
	c.checked.Store(digest, true)
	return wasm, nil
}

func compress(wasm []byte) ([]byte, error) {
	var packed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := writer.Write(wasm); err != nil {
		return nil, err
	}
	err = writer.Close()
	return packed.Bytes(), err
}

func decompress(packed io.Reader) ([]byte, error) {
	reader, err := gzip.NewReader(packed)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(reader, pluginsource.MaxModuleBytes+1))
}
