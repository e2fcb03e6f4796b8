// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadows

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/refract-project/refract/controllers/internal/memo"
)

// The objects that were created for a shadow object are deleted when the shadow object is gone. The cluster's garbage
// collector also deletes them, but it is slow after its start and under load, and does not run while the
// kube-controller-manager is down. Until then, undesired pods run and traffic is sent to undesired endpoints.

// DeletionRetryDelay is the delay until an object is checked again because it differed from the cached version.
const DeletionRetryDelay = 200 * time.Millisecond

// Gone determines whether objects of a kind are gone permanently. It is safe for concurrent use.
type Gone struct {
	kind Kind
	live client.Reader
	last memo.Memo[types.UID] // UID of the deleted object, kept until its dependent is gone
}

// NewGone returns a Gone. If the watch has not delivered the deletion of an object, live is read, which must not be
// cached.
func NewGone(kind Kind, live client.Reader) *Gone { return &Gone{kind: kind, live: live} }

// Predicate returns a predicate that records the deletions that the watch has delivered. An object that is merely
// missing in a list does not count as deleted, because it may have been restored since.
func (g *Gone) Predicate() predicate.Predicate {
	return predicate.Funcs{DeleteFunc: func(e event.DeleteEvent) bool {
		if !e.DeleteStateUnknown {
			g.last.Set(client.ObjectKeyFromObject(e.Object), e.Object.GetUID())
		}
		return true
	}}
}

// Forget drops the record of an object whose dependent is gone.
func (g *Gone) Forget(key types.NamespacedName) { g.last.Drop(key) }

// Check returns an error unless the object with that UID is gone. If the watch has not delivered the deletion, for
// example after a restart or after etcd was restored, Check reads from the API server.
func (g *Gone) Check(ctx context.Context, key types.NamespacedName, uid types.UID) error {
	if gone, known := g.last.Get(key); known && gone == uid {
		return nil
	}
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(g.kind.gvk())
	err := g.live.Get(ctx, key, live)
	switch {
	case err == nil && live.UID == uid:
		return fmt.Errorf("waiting for %s %s to be seen, without which what was made of it cannot be judged", g.kind, key)
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("getting %s %s, %w", g.kind, key, err)
	}
	return nil
}

// OwnerOf returns the controller reference of the object made if its owner has this kind, and nil if not.
func (k Kind) OwnerOf(made client.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(made)
	if owner == nil || owner.Kind != string(k) || owner.APIVersion != k.gvk().GroupVersion().String() || owner.Name != made.GetName() {
		return nil
	}
	return owner
}

// WaitsForDependents reports whether an object is being deleted in the foreground.
func WaitsForDependents(shadow client.Object) bool {
	return shadow.GetDeletionTimestamp() != nil && slices.Contains(shadow.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

// Delete deletes made, a dependent of an object that is gone. It does not delete a dependent that has changed since the
// cached version, because it may no longer have an owner (--cascade=orphan). wait is the delay until the next attempt;
// 0 means that none is needed.
func Delete(ctx context.Context, c client.Client, made client.Object) (wait time.Duration, err error) {
	if made.GetDeletionTimestamp() != nil {
		return 0, nil
	}
	uid, version := made.GetUID(), made.GetResourceVersion()
	target := &metav1.PartialObjectMetadata{}
	target.SetGroupVersionKind(made.GetObjectKind().GroupVersionKind())
	target.Namespace, target.Name = made.GetNamespace(), made.GetName()
	err = c.Delete(ctx, target, client.Preconditions{UID: &uid, ResourceVersion: &version})
	switch {
	case apierrors.IsConflict(err):
		return DeletionRetryDelay, nil
	case client.IgnoreNotFound(err) != nil:
		return 0, fmt.Errorf("deleting %s %s, %w", target.Kind, client.ObjectKeyFromObject(made), err)
	}
	return 0, nil
}
