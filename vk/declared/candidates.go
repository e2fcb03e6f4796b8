// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package declared

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/host/source"
	"github.com/refract-project/refract/internal/pluginrevision"
)

// Candidate is a revision that may become active, with the set of declared plugins as it would be then.
type Candidate struct {
	// Plugin, Revision and Active are the names of the ReflectionPlugin, its candidate and its active PluginRevision.
	// Active may be empty.
	Plugin, Revision, Active string
	// Others is the key of the active revisions of the other plugins.
	Others string
	// LeadsShared reports whether this virtual node rehearses the kinds that all virtual nodes of the provider share.
	LeadsShared bool
	// IsForProvider reports whether the candidate applies to this provider. If not, Plugins does not contain it.
	IsForProvider bool
	// Declared are the paths that the manifests of these plugins declare (writes).
	Declared []string
	// Plugins is an argument for Chains.NewCandidate or Chains.Declare.
	Plugins []source.Declared
}

// Candidates returns the candidate of each plugin that has one, if the candidate or the plugin's active revision
// applies to this provider. It uses only what the watches have reported, because a stalled request must not delay a
// promotion or a rollback.
func (f *Follower) Candidates(ctx context.Context) (candidates []Candidate, err error) {
	all, err := f.watchedPlugins()
	if err != nil {
		return nil, err
	}
	find := func(name string) (*plugins.PluginRevision, error) { return f.findRevision(ctx, name) }
	active := f.selectActive(all, find)
	for _, p := range all {
		if p.Status.CandidateRevision == "" || p.DeletionTimestamp != nil {
			continue
		}
		revision, err := find(p.Status.CandidateRevision)
		if apierrors.IsNotFound(err) {
			continue // it was deleted: the candidates of other plugins do not wait until the controller manager makes it again
		}
		if err != nil {
			return nil, fmt.Errorf("getting the candidate of ReflectionPlugin %s, %w", p.Name, err)
		}
		if !metav1.IsControlledBy(revision, p) {
			continue
		}
		c := Candidate{
			Plugin: p.Name, Revision: revision.Name, Active: p.Status.ActiveRevision, Others: pluginrevision.OthersKey(all, p.Name),
			LeadsShared: f.options.LeadsShared(), IsForProvider: f.isForProvider(revision.Spec.Match),
		}
		set := slices.DeleteFunc(slices.Clone(active), func(a activePlugin) bool { return a.name == p.Name })
		if !c.IsForProvider && len(set) == len(active) {
			continue
		}
		if c.IsForProvider {
			set = append(set, activePlugin{name: p.Name, uid: p.UID, revision: revision.Name, spec: &revision.Spec})
		}
		slices.SortFunc(set, func(a, b activePlugin) int { return strings.Compare(a.name, b.name) })
		for _, a := range set {
			c.Declared = append(c.Declared, a.spec.Manifest.Writes...)
		}
		c.Plugins = f.declareAll(ctx, set)
		candidates = append(candidates, c)
	}
	return candidates, nil
}

// watchedPlugins returns the ReflectionPlugins that the watch has reported.
func (f *Follower) watchedPlugins() (all []*plugins.ReflectionPlugin, err error) {
	for _, object := range f.plugins.GetStore().List() {
		p, err := decodeObject[plugins.ReflectionPlugin](object.(*unstructured.Unstructured))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}
