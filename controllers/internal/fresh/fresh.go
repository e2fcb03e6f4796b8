// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package fresh prevents irreversible actions based on an outdated cache.
//
// A cache follows the API server within milliseconds, with one exception: after etcd was restored from a backup, it has
// the objects from before the restore until its watch notices, which takes seconds. If an object was being deleted
// then, but no longer is, it must not be finalized, because that would delete its objects on another cluster.
package fresh

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Check reads a cached custom resource from the API server, and fails unless it is the same object in the same
// generation, and being deleted if the cached one is. live must not be cached.
func Check(ctx context.Context, c client.Client, live client.Reader, object client.Object) error {
	kind, err := apiutil.GVKForObject(object, c.Scheme())
	if err != nil {
		return err
	}
	key := client.ObjectKeyFromObject(object)
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(kind)
	if err := live.Get(ctx, key, found); err != nil {
		return fmt.Errorf("making sure that %s %s is as the cache shows it, %w", kind.Kind, key, err)
	}
	if found.UID != object.GetUID() || found.Generation != object.GetGeneration() || (found.DeletionTimestamp == nil) != (object.GetDeletionTimestamp() == nil) {
		return fmt.Errorf("%s %s is not as the cache shows it, waiting for the cache", kind.Kind, key)
	}
	return nil
}
