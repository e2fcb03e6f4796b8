// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/internal/pluginrevision"
)

// activePlugin is the active revision of a ReflectionPlugin that applies to this provider.
type activePlugin struct {
	name     string
	uid      types.UID
	revision string
	// spec is the spec of the revision. If the revision cannot be read, see settingsOfUnread.
	spec *plugins.PluginRevisionSpec
	err  error // why the revision cannot be used; nil if it can be used
	// promoted is the ReflectionPlugin if the revision is its active one. It is nil if the revision was restored here.
	promoted *plugins.ReflectionPlugin
	entry    *plugins.VirtualNodePlugin // existing entry of this virtual node; nil if there is none
}

// readActive reads the plugins and revisions from the API server instead of the watches.
func (f *Follower) readActive(ctx context.Context) ([]activePlugin, error) {
	all, err := listObjects[plugins.ReflectionPlugin](ctx, f, pluginsResource)
	if err != nil {
		return nil, err
	}
	revisions, err := listObjects[plugins.PluginRevision](ctx, f, revisionsResource)
	if apierrors.IsNotFound(err) && slices.ContainsFunc(all, func(p *plugins.ReflectionPlugin) bool { return p.Status.ActiveRevision != "" }) {
		// The error is not an IsNotFound error, because active plugins are declared.
		return nil, fmt.Errorf("plugins are active, and their PluginRevisions are not defined: install the CustomResourceDefinition %s (%s)",
			revisionsResource.GroupResource(), err.Error())
	}
	if err != nil {
		return nil, err
	}
	return f.selectActive(all, func(name string) (*plugins.PluginRevision, error) {
		if i := slices.IndexFunc(revisions, func(r *plugins.PluginRevision) bool { return r.Name == name }); i >= 0 {
			return revisions[i], nil
		}
		return f.getRevision(ctx, name)
	}), nil
}

// selectActive returns the active revisions of the plugins that apply to this provider, ordered by name.
func (f *Follower) selectActive(all []*plugins.ReflectionPlugin, find func(name string) (*plugins.PluginRevision, error)) (active []activePlugin) {
	for _, p := range all {
		// If a plugin is deleted in the foreground, its revisions are deleted before it.
		if p.Status.ActiveRevision == "" || p.DeletionTimestamp != nil {
			continue
		}
		if a := f.runningOf(p, find); f.isForProvider(a.spec.Match) {
			active = append(active, a)
		}
	}
	f.forgetUnused(all)
	slices.SortFunc(active, func(a, b activePlugin) int { return strings.Compare(a.name, b.name) })
	return active
}

// isForProvider reports whether a revision applies to this provider.
func (f *Follower) isForProvider(match *plugins.PluginMatch) bool {
	return match == nil || len(match.Providers) == 0 || slices.Contains(match.Providers, f.options.RemoteClusterID)
}

// activeOf returns the active revision of a plugin.
func (f *Follower) activeOf(p *plugins.ReflectionPlugin, find func(name string) (*plugins.PluginRevision, error)) activePlugin {
	a := activePlugin{name: p.Name, uid: p.UID, revision: p.Status.ActiveRevision}
	revision, err := find(a.revision)
	switch {
	case apierrors.IsNotFound(err):
		err = &revisionError{fmt.Sprintf("PluginRevision %s, which is active, does not exist: unset spec.revision, so that the controller manager makes it again from the source", a.revision)}
	case err != nil:
		err = fmt.Errorf("getting PluginRevision %s, %w", a.revision, err)
	case !metav1.IsControlledBy(revision, p):
		err = &revisionError{fmt.Sprintf("PluginRevision %s is not one of this ReflectionPlugin: delete the revision, so that the controller manager makes it again from the source", a.revision)}
	default:
		a.spec, a.entry = &revision.Spec, f.entryIn(revision)
		f.mu.Lock()
		f.read[a.revision] = a.spec
		f.mu.Unlock()
		return a
	}
	a.spec, a.err = f.settingsOfUnread(p), err
	return a
}

// settingsOfUnread returns the settings of an active revision that cannot be read. These are the settings that were
// read before. If the revision was never read, the plugin may have been edited, so the widest settings are returned:
// all objects of its kinds are held, for each provider.
func (f *Follower) settingsOfUnread(p *plugins.ReflectionPlugin) *plugins.PluginRevisionSpec {
	f.mu.Lock()
	defer f.mu.Unlock()
	if spec := f.read[p.Status.ActiveRevision]; spec != nil && spec.Plugin == p.Name {
		return spec
	}
	widest := &plugins.PluginRevisionSpec{Plugin: p.Name, PluginSettings: p.Spec.PluginSettings}
	widest.Match, widest.FailurePolicy = nil, plugins.FailPluginPolicy
	return widest
}

// forgetUnused removes the settings of revisions that are neither active nor previous.
func (f *Follower) forgetUnused(all []*plugins.ReflectionPlugin) {
	used := map[string]bool{}
	for _, p := range all {
		used[p.Status.ActiveRevision], used[p.Status.PreviousRevision] = true, true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.read, func(name string, _ *plugins.PluginRevisionSpec) bool { return !used[name] })
}

// revisionError is returned for an active revision that does not exist or cannot be used.
type revisionError struct{ message string }

func (e *revisionError) Error() string { return e.message }

// findRevision returns a revision from the watch. If the watch has not reported the revision yet, it is read from the
// API server.
func (f *Follower) findRevision(ctx context.Context, name string) (*plugins.PluginRevision, error) {
	object, exists, err := f.revisions.GetStore().GetByKey(name)
	if err != nil || !exists {
		return f.getRevision(ctx, name)
	}
	return decodeObject[plugins.PluginRevision](object.(*unstructured.Unstructured))
}

// declareAll converts the revisions for the chains. If one of them selects by the labels of namespaces, it starts the
// watch of namespaces.
func (f *Follower) declareAll(ctx context.Context, set []activePlugin) []source.Declared {
	declared := make([]source.Declared, 0, len(set))
	for i := range set {
		if match := set[i].spec.Match; match != nil && match.NamespaceSelector != nil {
			f.namespaces.watch(ctx, f.options.CallTimeout)
		}
		declared = append(declared, f.declare(&set[i]))
	}
	return declared
}

// declare converts a revision for the chains.
func (f *Follower) declare(a *activePlugin) source.Declared {
	d := source.Declared{Name: a.name, Revision: a.revision, Err: a.err}
	var err error
	if d.Options, err = pluginrevision.DecodeOptions(&a.spec.PluginSettings); err != nil {
		d.Err = cmp.Or(d.Err, fmt.Errorf("config: %w", err))
	}
	if d.Selector, err = f.selectors.share(a.spec.Match); err != nil {
		d.Err = cmp.Or(d.Err, err)
	}
	spec := a.spec
	if a.err == nil {
		d.Manifest = &host.Manifest{Kinds: spec.Manifest.Kinds, Hooks: spec.Manifest.Hooks}
	}
	d.Digest = "sha256:" + spec.SHA256
	d.Read = func(ctx context.Context) ([]byte, error) {
		return pluginrevision.ReadModule(ctx, f.getModule, spec.SHA256, spec.Size)
	}
	return d
}
