// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// syncLeaseOwner makes the Node the owner of its Lease, and reports whether the Node is the owner now. The
// virtual-kubelet library sets the owner only once, from its own copy of the Node. After the Node was deleted and
// recreated, the recorded owner no longer exists, so that the garbage collector deletes the Lease. It also deletes
// the next Lease if the library's copy is still the former Node.
func (c *Controller) syncLeaseOwner(ctx context.Context, node *corev1.Node) (owned bool, err error) {
	if c.leaseOwner == node.UID {
		return true, nil
	}
	leases := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Get(ctx, node.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil // nothing to do yet: the library creates the Lease
	case err != nil:
		return false, fmt.Errorf("getting the lease of node %s, %w", node.Name, err)
	}
	if owners := ownersWith(lease.OwnerReferences, node); !slices.Equal(owners, lease.OwnerReferences) {
		lease.OwnerReferences = owners
		if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
			return false, fmt.Errorf("writing the owner of the lease of node %s, %w", node.Name, err)
		}
		log.FromContext(ctx).Info("The lease belongs to the present node again")
	}
	c.leaseOwner = node.UID
	return true, nil
}

// ownersWith returns the owners with node in place of any other Node.
func ownersWith(owners []metav1.OwnerReference, node *corev1.Node) []metav1.OwnerReference {
	isNode := func(owner metav1.OwnerReference) bool { return owner.Kind == "Node" && owner.UID == node.UID }
	kept := slices.DeleteFunc(slices.Clone(owners), func(owner metav1.OwnerReference) bool { return owner.Kind == "Node" && !isNode(owner) })
	if slices.ContainsFunc(kept, isNode) {
		return kept
	}
	return append(kept, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID})
}
