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

// What was made of an object is deleted when that is gone. The garbage collector of the cluster does that, too, but it is late after its start and while it is
// busy, and does nothing while the kube-controller-manager is away: until then a pod runs, and traffic is sent to endpoints, that nobody wants any more.

// DeletionRetry is when an object is looked at again that was not as the cache showed it.
const DeletionRetry = 200 * time.Millisecond

// Gone knows which objects of a kind are gone for good. Safe for concurrent use.
type Gone struct {
	kind Kind
	live client.Reader
	last memo.Memo[types.UID] // that was deleted, until what was made of it is gone
}

// NewGone returns a Gone that asks live, which must not be cached, about deletions that the watch has not delivered.
func NewGone(kind Kind, live client.Reader) *Gone { return &Gone{kind: kind, live: live} }

// Predicate remembers objects whose deletion the watch has delivered. One that a list lacks may have been restored since.
func (g *Gone) Predicate() predicate.Predicate {
	return predicate.Funcs{DeleteFunc: func(e event.DeleteEvent) bool {
		if !e.DeleteStateUnknown {
			g.last.Set(client.ObjectKeyFromObject(e.Object), e.Object.GetUID())
		}
		return true
	}}
}

// Forget drops the memory of an object of which nothing is left.
func (g *Gone) Forget(key types.NamespacedName) { g.last.Drop(key) }

// Check returns an error unless the object with that UID is gone. The API server is asked if the watch has not said so: after a restart, or when etcd was
// restored.
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

// OwnerOf returns the object of the kind that controls what was made of it, nil if none does.
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

// Delete deletes what was made of an object that is gone, as the cache shows it: one that was released from its owner since then (--cascade=orphan) is another
// version. wait is after which time to try again, 0 for never.
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
		return DeletionRetry, nil
	case client.IgnoreNotFound(err) != nil:
		return 0, fmt.Errorf("deleting %s %s, %w", target.Kind, client.ObjectKeyFromObject(made), err)
	}
	return 0, nil
}
