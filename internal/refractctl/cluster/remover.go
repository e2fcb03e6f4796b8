// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Remover removes objects from a cluster during one run. It records which objects it has removed, and which were left.
// In a dry run, it does not change the cluster, and records what it would remove. It is not safe for concurrent use.
type Remover struct {
	*Side
	dryRun        bool
	removed, left []*metav1.PartialObjectMetadata
}

// NewRemover returns a Remover without records.
func NewRemover(side *Side, dryRun bool) *Remover { return &Remover{Side: side, dryRun: dryRun} }

// Removed returns the objects that were removed. In a dry run, these include the contents of deleted namespaces, and
// the objects that controllers would remove together with a virtual node.
func (r *Remover) Removed() []*metav1.PartialObjectMetadata { return r.removed }

// Left returns the objects that were found but not removed.
func (r *Remover) Left() []*metav1.PartialObjectMetadata { return r.left }

// Remove deletes the objects in reverse order. Objects that do not exist are skipped. Objects that refractctl has not
// created are recorded as left.
func (r *Remover) Remove(ctx context.Context, objects ...client.Object) error {
	for _, object := range slices.Backward(objects) {
		found, kind, err := r.Find(ctx, object)
		switch {
		case err != nil:
			return err
		case found == nil:
		case !IsOurs(found):
			r.RecordLeft(kind, found.Namespace, found.Name)
		default:
			if err := r.Delete(ctx, found); err != nil {
				return err
			}
		}
	}
	return nil
}

// RemoveAnyones deletes an object if it exists, no matter who created it.
func (r *Remover) RemoveAnyones(ctx context.Context, object client.Object) error {
	found, _, err := r.Find(ctx, object)
	if err != nil || found == nil {
		return err
	}
	return r.Delete(ctx, found)
}

// Delete deletes an existing object. In a dry run, it only records the object.
func (r *Remover) Delete(ctx context.Context, found *metav1.PartialObjectMetadata) error {
	err := r.Change(func() error { return r.Client.Delete(ctx, found, client.Preconditions{UID: &found.UID}) })
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cluster %s: deleting %s %s, %w", r.Name, found.Kind, client.ObjectKeyFromObject(found), err)
	}
	r.RecordRemoved(found)
	return nil
}

// Change calls write, which changes the cluster, unless this is a dry run.
func (r *Remover) Change(write func() error) error {
	if r.dryRun {
		return nil
	}
	return write()
}

// RecordRemoved records an object as removed, even if another client removes it as part of the run.
func (r *Remover) RecordRemoved(object *metav1.PartialObjectMetadata) {
	if !r.HasRemoved(object.UID) {
		r.removed = append(r.removed, object)
	}
}

// HasRemoved reports whether an object was removed or, in a dry run, recorded as removed.
func (r *Remover) HasRemoved(uid types.UID) bool {
	return slices.ContainsFunc(r.removed, func(one *metav1.PartialObjectMetadata) bool { return one.UID == uid })
}

// RecordLeft records an object that is not removed.
func (r *Remover) RecordLeft(kind schema.GroupVersionKind, namespace, name string) {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	object.SetGroupVersionKind(kind)
	r.left = append(r.left, object)
}

// unlistedKinds are kinds that are not listed as contents of a deleted namespace: Events, and Endpoints, which
// duplicate EndpointSlices.
var unlistedKinds = sets.New("Event", "Endpoints")

// PreviewAll records objects as removed in a dry run: all objects in a namespace, or all objects with the given labels.
// In a real run, controllers would remove them, or they would be deleted with the namespace. Kinds that the user may
// not list are omitted.
func (r *Remover) PreviewAll(ctx context.Context, options ...client.ListOption) error {
	if !r.dryRun {
		return nil
	}
	groups, err := r.Clientset.Discovery().ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return fmt.Errorf("cluster %s: listing its resources, %w", r.Name, err)
	}
	listed := (&client.ListOptions{}).ApplyOptions(options)
	for _, group := range groups {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			continue
		}
		for _, resource := range group.APIResources {
			deletable := slices.Contains(resource.Verbs, "list") && slices.Contains(resource.Verbs, "delete")
			if !deletable || unlistedKinds.Has(resource.Kind) || listed.Namespace != "" && !resource.Namespaced {
				continue
			}
			all := &metav1.PartialObjectMetadataList{}
			all.SetGroupVersionKind(version.WithKind(resource.Kind + "List"))
			err := r.Client.List(ctx, all, options...)
			if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) || apimeta.IsNoMatchError(err) {
				continue
			}
			if err != nil {
				return fmt.Errorf("cluster %s: listing %s, %w", r.Name, resource.Name, err)
			}
			for i := range all.Items {
				all.Items[i].SetGroupVersionKind(version.WithKind(resource.Kind))
				r.RecordRemoved(&all.Items[i])
			}
		}
	}
	return nil
}

// PreviewContents records the contents of a namespace as removed in a dry run, in which the namespace is removed.
func (r *Remover) PreviewContents(ctx context.Context, namespace client.Object) error {
	if !r.dryRun {
		return nil
	}
	found, _, err := r.Find(ctx, namespace)
	if err != nil || found == nil || !r.HasRemoved(found.UID) {
		return err
	}
	return r.PreviewAll(ctx, client.InNamespace(namespace.GetName()))
}
