// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclientv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// ownedLeases makes the virtual-kubelet library write Leases that belong to the present Node. The library takes the
// owner from its own copy of the Node, which is outdated after the Node was deleted and created again. The garbage
// collector would delete each Lease of a former Node as soon as it is created, and the control plane regards a Node
// without a Lease as dead.
type ownedLeases struct {
	coordinationclientv1.LeaseInterface
	present func() *corev1.Node // returns nil if this process has no Node
	report  func(error)         // called with the result of each write
}

func (l ownedLeases) Create(ctx context.Context, lease *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	node := l.present()
	if node == nil {
		return nil, fmt.Errorf("creating the lease of node %s: the node does not exist", lease.Name)
	}
	lease = lease.DeepCopy()
	lease.OwnerReferences = ownersWith(lease.OwnerReferences, node)
	stored, err := l.LeaseInterface.Create(ctx, lease, o)
	l.report(err)
	return stored, err
}

func (l ownedLeases) Update(ctx context.Context, lease *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if node := l.present(); node != nil {
		lease = lease.DeepCopy()
		lease.OwnerReferences = ownersWith(lease.OwnerReferences, node)
	}
	stored, err := l.LeaseInterface.Update(ctx, lease, o)
	l.report(err)
	return stored, err
}

// leaseSubject is the subject of warnings about the Lease.
const leaseSubject = "Lease"

// reportLease reports with Config.Warn that a write of the Node's Lease was refused. The library only logs this, and
// the control plane regards the Node as dead if the Lease is not renewed.
func (c *Controller) reportLease(err error) {
	if err != nil {
		err = fmt.Errorf("writing the lease of node %s, %w", c.config.Name, err)
	}
	if refusal := describeRefusal(err); refusal != "" || err == nil {
		c.warnAbout(leaseSubject, UpdateFailedReason, refusal)
	}
}

// presentNode returns the observed Node if it belongs to this process.
func (c *Controller) presentNode() *corev1.Node {
	if node := c.observed.node(); node != nil && c.ownsNode(node) {
		return node
	}
	return nil
}

// syncLeaseOwner makes a new Node the owner of the existing Lease before the garbage collector deletes the Lease, and
// reports whether the Node is the owner now. The library would do this only when it renews the Lease.
func (c *Controller) syncLeaseOwner(ctx context.Context, node *corev1.Node) (owned bool, err error) {
	if c.leaseOwner == node.UID {
		return true, nil
	}
	leases := c.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Get(ctx, node.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil // nothing to do, because the library will create the Lease
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

// ownersWith returns the owners, with any other Node replaced with node.
func ownersWith(owners []metav1.OwnerReference, node *corev1.Node) []metav1.OwnerReference {
	isNode := func(owner metav1.OwnerReference) bool { return owner.Kind == "Node" && owner.UID == node.UID }
	kept := slices.DeleteFunc(slices.Clone(owners), func(owner metav1.OwnerReference) bool { return owner.Kind == "Node" && !isNode(owner) })
	if slices.ContainsFunc(kept, isNode) {
		return kept
	}
	return append(kept, metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID})
}
