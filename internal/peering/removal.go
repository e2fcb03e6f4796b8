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
	// Cluster is its id.
	Cluster, Kind, Namespace, Name string
}

// Removed returns what the last Unpeer, GiveUp or Withdraw has removed, or would have in a dry run. A dry run has also what is in namespaces
// that go, and what controllers remove with a virtual node.
func (o *Options) Removed() []Object {
	return o.objects(func(c *Cluster) []*metav1.PartialObjectMetadata { return c.removed })
}

// Left returns what the last Unpeer, GiveUp or Withdraw has found of the peering and left: what others have made, what the peering in the other
// direction still needs, and what is for the administrator of the provider to remove.
func (o *Options) Left() []Object {
	return o.objects(func(c *Cluster) []*metav1.PartialObjectMetadata { return c.left })
}

// Reverse reports whether the last Unpeer has found the clusters joined in the other direction, too.
func (o *Options) Reverse() bool { return o.reverse }

func (o *Options) objects(of func(*Cluster) []*metav1.PartialObjectMetadata) (all []Object) {
	for _, c := range []*Cluster{o.Consumer, o.Provider} {
		for _, object := range of(c) {
			all = append(all, Object{c.ID(), object.Kind, object.Namespace, object.Name})
		}
	}
	return all
}

// beginRemoval forgets what an earlier call has removed.
func (o *Options) beginRemoval() {
	o.reverse = false
	for _, c := range []*Cluster{o.Consumer, o.Provider} {
		c.dryRun, c.removed, c.left = o.DryRun, nil, nil
	}
}

// sayRemovals lists what a dry run has found.
func (o *Options) sayRemovals() {
	for list, what := range []string{"would be removed", "would be left"} {
		for _, object := range [][]Object{o.Removed(), o.Left()}[list] {
			o.say("%s: %s %s %s", object.Cluster, object.Kind, strings.TrimPrefix(object.Namespace+"/"+object.Name, "/"), what)
		}
	}
}

// discard deletes an object that was found. A dry run only notes it.
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

// discardAny deletes an object if it is there, whoever has made it.
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

// isRemoved reports whether an object is gone, or would be by now in a dry run.
func (c *Cluster) isRemoved(uid types.UID) bool {
	return slices.ContainsFunc(c.removed, func(one *metav1.PartialObjectMetadata) bool { return one.UID == uid })
}

func (c *Cluster) noteLeft(kind schema.GroupVersionKind, namespace, name string) {
	object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	object.SetGroupVersionKind(kind)
	c.left = append(c.left, object)
}

// passing are kinds that nobody asks for when a namespace goes: what is said about objects, and a former name of EndpointSlices.
var passing = sets.New("Event", "Endpoints")

// noteAll notes, in a dry run, all objects in a namespace as removed, or those with labels in any: controllers remove them, or the namespace
// takes them along. Kinds that the user may not list are left out.
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
