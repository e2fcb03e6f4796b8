// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package fresh prevents irreversible actions based on an outdated cache.
//
// A cache usually follows the API server within milliseconds. After etcd has been restored from a backup, however, the
// cache contains the objects from before the restore for some seconds, until its watch fails. An object may have been
// marked for deletion before the restore, but not after it. Such an object must not be finalized, because its objects
// on another cluster would be deleted.
package fresh

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Check compares a cached custom resource with the API server. It returns an error unless the API server has the same
// object (by UID), in the same generation, and either both are being deleted or neither is. The reader live must not be
// cached.
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
