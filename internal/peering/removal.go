// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Object names an object of one of the clusters.
type Object struct {
	// Cluster is the ID of the cluster.
	Cluster, Kind, Namespace, Name string
}

// Removed returns the objects that the last Unpeer, GiveUp or Withdraw has removed, or would have removed in a dry
// run. A dry run also lists the contents of deleted namespaces, and the objects that controllers remove with a
// virtual node.
func (o *Options) Removed() []Object {
	return o.objects(func(c *Cluster) []*metav1.PartialObjectMetadata { return c.removed })
}

// Left returns the objects of the peering that the last Unpeer, GiveUp or Withdraw has left: objects that others have
// created, objects that the peering in the other direction still needs, and objects that the administrator of the
// provider has to remove.
func (o *Options) Left() []Object {
	return o.objects(func(c *Cluster) []*metav1.PartialObjectMetadata { return c.left })
}

// Reverse reports whether the last Unpeer found that the clusters are also joined in the other direction.
func (o *Options) Reverse() bool { return o.reverse }

func (o *Options) objects(of func(*Cluster) []*metav1.PartialObjectMetadata) (all []Object) {
	for _, c := range []*Cluster{o.Consumer, o.Provider} {
		for _, object := range of(c) {
			all = append(all, Object{c.ID(), object.Kind, object.Namespace, object.Name})
		}
	}
	return all
}

// beginRemoval clears the record of the objects that an earlier call has removed.
func (o *Options) beginRemoval() {
	o.reverse = false
	for _, c := range []*Cluster{o.Consumer, o.Provider} {
		c.dryRun, c.removed, c.left = o.DryRun, nil, nil
	}
}

// sayRemovals lists the objects that a dry run has found.
func (o *Options) sayRemovals() {
	for list, what := range []string{"would be removed", "would be left"} {
		for _, object := range [][]Object{o.Removed(), o.Left()}[list] {
			o.say("%s: %s %s %s", object.Cluster, object.Kind, strings.TrimPrefix(object.Namespace+"/"+object.Name, "/"), what)
		}
	}
}

// discard deletes an object that was found. In a dry run it only records the object.
func (c *Cluster) discard(ctx context.Context, found *metav1.PartialObjectMetadata) error {
	if !c.dryRun {
		err := c.Client.Delete(ctx, found, client.Preconditions{UID: &found.UID})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("cluster %s: deleting %s %s, %w", c.Name, found.Kind, client.ObjectKeyFromObject(found), err)
		}
	}
	c.noteRemoved(found)
	return nil
}

// discardAny deletes an object if it exists, even if somebody else has created it.
func (c *Cluster) discardAny(ctx context.Context, object client.Object) error {
	found, _, err := c.find(ctx, object)
	if err != nil || found == nil {
		return err
	}
	return c.discard(ctx, found)
}

func (c *Cluster) noteRemoved(object *metav1.PartialObjectMetadata) {
	if !c.isRemoved(object.UID) {
		c.removed = append(c.removed, object)
	}
}

// isRemoved reports whether an object was removed, or would have been removed so far in a dry run.
func (c *Cluster) isRemoved(uid types.UID) bool {
	return slices.ContainsFunc(c.removed, func(one *metav1.PartialObjectMetadata) bool { return one.UID == uid })
}

func (c *Cluster) noteLeft(kind schema.GroupVersionKind, namespace, name string) {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	object.SetGroupVersionKind(kind)
	c.left = append(c.left, object)
}

// passing are kinds that are not listed for a deleted namespace: Events, and Endpoints, which duplicate
// EndpointSlices.
var passing = sets.New("Event", "Endpoints")

// noteAll records, in a dry run, all objects in a namespace as removed, or all objects with the given labels in any
// namespace. They are removed by controllers or with the namespace. Kinds that the user may not list are left out.
func (c *Cluster) noteAll(ctx context.Context, options ...client.ListOption) error {
	if !c.dryRun {
		return nil
	}
	groups, err := c.Clientset.Discovery().ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return fmt.Errorf("cluster %s: listing its resources, %w", c.Name, err)
	}
	listed := (&client.ListOptions{}).ApplyOptions(options)
	for _, group := range groups {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			continue
		}
		for _, resource := range group.APIResources {
			deletable := slices.Contains(resource.Verbs, "list") && slices.Contains(resource.Verbs, "delete")
			if !deletable || passing.Has(resource.Kind) || listed.Namespace != "" && !resource.Namespaced {
				continue
			}
			all := &metav1.PartialObjectMetadataList{}
			all.SetGroupVersionKind(version.WithKind(resource.Kind + "List"))
			err := c.Client.List(ctx, all, options...)
			if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) || apimeta.IsNoMatchError(err) {
				continue
			}
			if err != nil {
				return fmt.Errorf("cluster %s: listing %s, %w", c.Name, resource.Name, err)
			}
			for i := range all.Items {
				all.Items[i].SetGroupVersionKind(version.WithKind(resource.Kind))
				c.noteRemoved(&all.Items[i])
			}
		}
	}
	return nil
}
