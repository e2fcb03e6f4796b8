// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1alpha1 "github.com/refract-project/refract/api/ipam/v1alpha1"
	api "github.com/refract-project/refract/api/networking/v1beta1"
)

// deleteFormer deletes the Networks in a namespace that belong to a deleted Configuration with the given name. The
// garbage collector would delete them half a minute later, or not at all. Until then, their ranges would be in use, and
// a new Configuration with the same name could not get Networks. current is the UID of the present Configuration, or
// empty if there is none.
func (c *Controller) deleteFormer(ctx context.Context, key client.ObjectKey, current types.UID) error {
	all := &ipamv1alpha1.NetworkList{}
	if err := c.client.List(ctx, all, client.InNamespace(key.Namespace)); err != nil {
		return fmt.Errorf("listing the Networks of namespace %s, %w", key.Namespace, err)
	}
	var former []*ipamv1alpha1.Network
	for i := range all.Items {
		n := &all.Items[i]
		owner := metav1.GetControllerOf(n)
		if owner == nil || owner.APIVersion != api.GroupVersion.String() || owner.Kind != api.ConfigurationKind || owner.Name != key.Name {
			continue
		}
		if owner.UID != current && n.DeletionTimestamp == nil {
			former = append(former, n)
		}
	}
	if len(former) == 0 {
		return nil
	}
	// The owner of these Networks may exist although it is not in the cache yet.
	present := &api.Configuration{}
	err := c.live.Get(ctx, key, present)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting Configuration %s, %w", key, err)
	}
	if present.UID != current {
		return nil // the event of this Configuration triggers another reconciliation
	}
	var failures []error
	for _, n := range former {
		// If the owner reference of a Network is removed at the same time, for example by kubectl delete
		// --cascade=orphan, the Network is not deleted.
		unchanged := client.Preconditions{UID: &n.UID, ResourceVersion: &n.ResourceVersion}
		if err := c.client.Delete(ctx, n, unchanged); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			failures = append(failures, fmt.Errorf("deleting Network %s, %w", client.ObjectKeyFromObject(n), err))
		}
	}
	return errors.Join(failures...)
}
