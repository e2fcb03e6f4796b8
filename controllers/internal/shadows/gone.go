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

// When a shadow object is gone, its controller deletes the objects that were created for it. The garbage collector
// would also delete them, but it is slow after its start and under load, and it does not run while
// kube-controller-manager is down. Until it has deleted them, undesired pods run, and undesired endpoints receive
// traffic.

// DeletionRetryDelay is the delay until an object is checked again because it differed from the cached version.
const DeletionRetryDelay = 200 * time.Millisecond

// Gone finds out whether objects of a kind are permanently gone. It is safe for concurrent use.
type Gone struct {
	kind Kind
	live client.Reader
	last memo.Memo[types.UID] // UID of the deleted object; kept until its dependent is gone
}

// NewGone returns a Gone for a kind. If the watch has not delivered the deletion of an object, Gone reads the object
// with live, which must not be cached.
func NewGone(kind Kind, live client.Reader) *Gone { return &Gone{kind: kind, live: live} }

// Predicate returns a predicate that records deletions delivered by the watch. An object that is only missing from a
// list does not count as deleted, because it may have been restored in the meantime.
func (g *Gone) Predicate() predicate.Predicate {
	return predicate.Funcs{DeleteFunc: func(e event.DeleteEvent) bool {
		if !e.DeleteStateUnknown {
			g.last.Set(client.ObjectKeyFromObject(e.Object), e.Object.GetUID())
		}
		return true
	}}
}

// Forget drops the record of a deleted object. It is called when the object's dependent is gone.
func (g *Gone) Forget(key types.NamespacedName) { g.last.Drop(key) }

// Check returns an error unless the object with this UID is gone. If the watch has not delivered the deletion, for
// example after a restart or a restore of etcd, Check reads the object from the API server.
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

// OwnerOf returns the controller reference of made if it refers to an object of this kind with made's name, and nil
// otherwise.
func (k Kind) OwnerOf(made client.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOf(made)
	if owner == nil || owner.Kind != string(k) || owner.APIVersion != k.gvk().GroupVersion().String() || owner.Name != made.GetName() {
		return nil
	}
	return owner
}

// WaitsForDependents reports whether an object is being deleted with foreground propagation.
func WaitsForDependents(shadow client.Object) bool {
	return shadow.GetDeletionTimestamp() != nil && slices.Contains(shadow.GetFinalizers(), metav1.FinalizerDeleteDependents)
}

// Delete deletes made, the dependent of an object that is gone. It does not delete a dependent that has changed since
// it was cached, because the owner reference may have been removed (--cascade=orphan). wait is the delay until the next
// attempt, or 0 if none is needed.
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
