// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// syncLeaseOwner makes the Node the owner of its Lease, and reports whether it is. The library sets the owner once, from its own copy of the
// Node, and keeps it. After the Node was deleted and created again that is a Node that does not exist, and the garbage collector deletes the Lease:
// the new Node counts as dead until the next renewal, again and again if the library's copy is as old.
func (c *Controller) syncLeaseOwner(ctx context.Context, node *corev1.Node) (owned bool, err error) {
	if c.leaseOwner == node.UID {
		return true, nil
	}
	leases := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Get(ctx, node.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil // the library creates it
	case err != nil:
		return false, fmt.Errorf("getting the lease of node %s, %w", node.Name, err)
	}
	if len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != node.UID {
		lease.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}}
		if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
			return false, fmt.Errorf("writing the owner of the lease of node %s, %w", node.Name, err)
		}
		log.FromContext(ctx).Info("The lease belongs to the present node again")
	}
	c.leaseOwner = node.UID
	return true, nil
}
