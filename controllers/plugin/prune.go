// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	plugins "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/jsonpatch"
)

// pruneEntries removes the entries of virtual nodes that no longer exist from the revisions of a plugin, because their virtual kubelets cannot remove them. A
// virtual node is gone if neither its Node nor its VirtualNode exists. The API server confirms this before an entry is removed.
func (c *Controller) pruneEntries(ctx context.Context, p *plugins.ReflectionPlugin) error {
	all := &plugins.PluginRevisionList{}
	if err := c.client.List(ctx, all); err != nil {
		return fmt.Errorf("listing PluginRevisions, %w", err)
	}
	nodes, err := listVirtualNodes(ctx, c.client)
	if err != nil {
		return err
	}
	isConfirmed := false
	var errs []error
	for i := range all.Items {
		revision := &all.Items[i]
		if !metav1.IsControlledBy(revision, p) || len(listStale(revision, nodes)) == 0 {
			continue
		}
		if !isConfirmed {
			if nodes, err = listVirtualNodes(ctx, c.live); err != nil {
				return err
			}
			isConfirmed = true
		}
		gone, err := c.keepMissing(ctx, listStale(revision, nodes))
		if err != nil {
			return err
		}
		errs = append(errs, c.removeEntries(ctx, revision, gone))
	}
	return errors.Join(errs...)
}

// keepMissing returns the names for which no Node exists. A Node counts even if it has lost the label of virtual nodes.
func (c *Controller) keepMissing(ctx context.Context, names []string) (missing []string, err error) {
	for _, name := range names {
		node := &metav1.PartialObjectMetadata{}
		node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
		err := c.live.Get(ctx, client.ObjectKey{Name: name}, node)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("getting Node %s, %w", name, err)
		}
		if err != nil {
			missing = append(missing, name)
		}
	}
	return missing, nil
}

// listStale returns the names in the status of a revision that are not among the virtual nodes.
func listStale(revision *plugins.PluginRevision, nodes []virtualNode) (stale []string) {
	for i := range revision.Status.VirtualNodes {
		name := revision.Status.VirtualNodes[i].Name
		if !slices.ContainsFunc(nodes, func(n virtualNode) bool { return n.name == name }) {
			stale = append(stale, name)
		}
	}
	return stale
}

// removeEntries removes entries from the status of a revision. If the list was changed meanwhile, the patch fails, and the next reconciliation removes them.
func (c *Controller) removeEntries(ctx context.Context, revision *plugins.PluginRevision, gone []string) error {
	if len(gone) == 0 {
		return nil
	}
	var patch jsonpatch.Patch
	// The loop starts at the end, so that the indexes of earlier entries stay valid.
	for i := range slices.Backward(revision.Status.VirtualNodes) {
		if name := revision.Status.VirtualNodes[i].Name; slices.Contains(gone, name) {
			path := fmt.Sprintf("/status/virtualNodes/%d", i)
			patch.Test(path+"/name", name)
			patch.Remove(path)
		}
	}
	body, err := patch.For(revision.UID)
	if err != nil {
		return err
	}
	err = c.client.Status().Patch(ctx, revision.DeepCopy(), body)
	if client.IgnoreNotFound(err) == nil || jsonpatch.IsOutdated(err) {
		return nil
	}
	return fmt.Errorf("removing the entries of virtual nodes that are gone from PluginRevision %s, %w", revision.Name, err)
}
