// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
)

// collectRevisions deletes the oldest unused revisions of a plugin beyond the history limit.
func (c *Controller) collectRevisions(ctx context.Context, p *plugins.ReflectionPlugin) error {
	all := &plugins.PluginRevisionList{}
	if err := c.client.List(ctx, all); err != nil {
		return fmt.Errorf("listing PluginRevisions, %w", err)
	}
	used := usedRevisions(p)
	old := slices.DeleteFunc(all.Items, func(r plugins.PluginRevision) bool {
		return !metav1.IsControlledBy(&r, p) || slices.Contains(used, r.Name)
	})
	slices.SortFunc(old, func(a, b plugins.PluginRevision) int {
		return cmp.Compare(b.Spec.Number, a.Spec.Number)
	})
	var errs []error
	for i := int(p.Spec.RevisionHistoryLimit); i < len(old); i++ {
		if err := c.client.Delete(ctx, &old[i], client.Preconditions{UID: &old[i].UID}); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("deleting PluginRevision %s, %w", old[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

// usedRevisions returns the names of the revisions that are kept regardless of the history limit.
func usedRevisions(p *plugins.ReflectionPlugin) []string {
	used := []string{p.Status.ActiveRevision, p.Status.PreviousRevision, p.Status.CandidateRevision, p.Spec.Revision}
	if rehearsal := p.Spec.Rollout.Rehearsal; rehearsal != nil {
		used = append(used, rehearsal.Approved)
	}
	return used
}

// collectModules deletes the modules without a revision, if there may be any. It reads uncached, because the cache may
// not have the newest revision.
func (c *Controller) collectModules(ctx context.Context) error {
	if !c.unused.Swap(false) {
		return nil
	}
	c.storing.Lock()
	defer c.storing.Unlock()
	err := c.deleteUnused(ctx)
	if err != nil {
		c.unused.Store(true)
	}
	return err
}

func (c *Controller) deleteUnused(ctx context.Context) error {
	modules := &metav1.PartialObjectMetadataList{}
	modules.SetGroupVersionKind(plugins.GroupVersion.WithKind("PluginModuleList"))
	if err := c.live.List(ctx, modules); err != nil {
		return fmt.Errorf("listing PluginModules, %w", err)
	}
	revisions := &plugins.PluginRevisionList{}
	if err := c.live.List(ctx, revisions); err != nil {
		return fmt.Errorf("listing PluginRevisions, %w", err)
	}
	used := map[string]bool{}
	for i := range revisions.Items {
		for part := range int(revisions.Items[i].Spec.Parts) {
			used[plugins.PluginModuleName(revisions.Items[i].Spec.SHA256, part)] = true
		}
	}
	var errs []error
	for i := range modules.Items {
		module := &plugins.PluginModule{ObjectMeta: metav1.ObjectMeta{Name: modules.Items[i].Name}}
		if used[module.Name] {
			continue
		}
		if err := c.client.Delete(ctx, module, client.Preconditions{UID: &modules.Items[i].UID}); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("deleting PluginModule %s, %w", module.Name, err))
		}
	}
	return errors.Join(errs...)
}
