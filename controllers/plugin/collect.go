// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
)

// collectRevisions deletes the oldest unused revisions of a plugin beyond the history limit, and the revisions of a deleted plugin with the same name.
func (c *Controller) collectRevisions(ctx context.Context, p *plugins.ReflectionPlugin) error {
	all := &plugins.PluginRevisionList{}
	if err := c.client.List(ctx, all); err != nil {
		return fmt.Errorf("listing PluginRevisions, %w", err)
	}
	if len(superfluous(p, all.Items)) == 0 {
		return nil
	}
	// The cache may be outdated: the plugin may have been recreated, or may use other revisions.
	live := &plugins.ReflectionPlugin{}
	if err := c.live.Get(ctx, client.ObjectKeyFromObject(p), live); err != nil || live.UID != p.UID {
		return client.IgnoreNotFound(err)
	}
	return c.deleteRevisions(ctx, superfluous(live, all.Items))
}

// collectOrphans deletes the revisions of a plugin that was deleted. The API server confirms the deletion.
func (c *Controller) collectOrphans(ctx context.Context, name string) error {
	all := &plugins.PluginRevisionList{}
	if err := c.client.List(ctx, all); err != nil {
		return fmt.Errorf("listing PluginRevisions, %w", err)
	}
	orphans := slices.DeleteFunc(all.Items, func(r plugins.PluginRevision) bool { return r.Spec.Plugin != name })
	if len(orphans) == 0 {
		return nil
	}
	if err := c.live.Get(ctx, client.ObjectKey{Name: name}, &plugins.ReflectionPlugin{}); !apierrors.IsNotFound(err) {
		return err
	}
	c.unused.Store(true)
	return c.deleteRevisions(ctx, orphans)
}

// superfluous returns the revisions of a plugin that can be deleted. Revisions that virtual nodes run because they cannot
// load the active one are kept.
func superfluous(p *plugins.ReflectionPlugin, all []plugins.PluginRevision) (revisions []plugins.PluginRevision) {
	used := usedRevisions(p)
	for i := range all {
		for _, entry := range all[i].Status.VirtualNodes {
			used = append(used, entry.RunningRevision)
		}
	}
	var old []plugins.PluginRevision
	for _, r := range all {
		switch {
		case metav1.IsControlledBy(&r, p) && !slices.Contains(used, r.Name):
			old = append(old, r)
		case r.Spec.Plugin == p.Name && !metav1.IsControlledBy(&r, p):
			revisions = append(revisions, r)
		}
	}
	slices.SortFunc(old, func(a, b plugins.PluginRevision) int {
		return cmp.Compare(b.Spec.Number, a.Spec.Number)
	})
	return append(revisions, old[min(int(p.Spec.RevisionHistoryLimit), len(old)):]...)
}

func (c *Controller) deleteRevisions(ctx context.Context, revisions []plugins.PluginRevision) error {
	var errs []error
	for i := range revisions {
		if err := c.client.Delete(ctx, &revisions[i], client.Preconditions{UID: &revisions[i].UID}); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("deleting PluginRevision %s, %w", revisions[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

// usedRevisions returns the names of the revisions that the history limit does not affect.
func usedRevisions(p *plugins.ReflectionPlugin) []string {
	used := []string{p.Status.ActiveRevision, p.Status.PreviousRevision, p.Status.CandidateRevision, p.Status.RejectedRevision, p.Spec.Revision}
	if rehearsal := p.Spec.Rollout.Rehearsal; rehearsal != nil {
		used = append(used, rehearsal.Approved)
	}
	return used
}

// collectModules deletes the modules without a revision if unused is set. It does not read from the cache, which may lack the newest revision.
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

// listModules returns the metadata of all PluginModules.
func (c *Controller) listModules(ctx context.Context) (*metav1.PartialObjectMetadataList, error) {
	modules := &metav1.PartialObjectMetadataList{}
	modules.SetGroupVersionKind(plugins.GroupVersion.WithKind("PluginModuleList"))
	if err := c.live.List(ctx, modules); err != nil {
		return nil, fmt.Errorf("listing PluginModules, %w", err)
	}
	return modules, nil
}

// firstPart returns the name of the first part of a module.
func firstPart(name string) string {
	if i := strings.LastIndex(name, "-"); i >= 0 {
		return name[:i] + "-0"
	}
	return name
}

func (c *Controller) deleteUnused(ctx context.Context) error {
	modules, err := c.listModules(ctx)
	if err != nil {
		return err
	}
	revisions := &plugins.PluginRevisionList{}
	if err := c.live.List(ctx, revisions); err != nil {
		return fmt.Errorf("listing PluginRevisions, %w", err)
	}
	// The number of the parts is not compared: another version of Go may have compressed the module into more.
	used := map[string]bool{}
	for i := range revisions.Items {
		used[firstPart(plugins.PluginModuleName(revisions.Items[i].Spec.SHA256, 0))] = true
	}
	var errs []error
	for i := range modules.Items {
		module := &plugins.PluginModule{ObjectMeta: metav1.ObjectMeta{Name: modules.Items[i].Name}}
		if used[firstPart(module.Name)] {
			continue
		}
		if err := c.client.Delete(ctx, module, client.Preconditions{UID: &modules.Items[i].UID}); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("deleting PluginModule %s, %w", module.Name, err))
		}
	}
	return errors.Join(errs...)
}
