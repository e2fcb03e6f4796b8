// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package finalizer adds and removes finalizers of objects.
package finalizer

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Ensure adds the finalizer to obj or removes it, with at most one write, which fails if the object has changed
// meanwhile. On success obj has the new finalizers and resourceVersion. Removing the finalizer from an object that no
// longer exists is not an error.
func Ensure(ctx context.Context, c client.Client, obj client.Object, name string, present bool) error {
	if controllerutil.ContainsFinalizer(obj, name) == present {
		return nil
	}
	changed := obj.DeepCopyObject().(client.Object)
	if present {
		controllerutil.AddFinalizer(changed, name)
	} else {
		controllerutil.RemoveFinalizer(changed, name)
	}
	err := c.Patch(ctx, changed, client.MergeFromWithOptions(obj, client.MergeFromWithOptimisticLock{}))
	if !present {
		err = client.IgnoreNotFound(err)
	}
	if err != nil {
		return fmt.Errorf("writing finalizers of %T %s, %w", obj, client.ObjectKeyFromObject(obj), err)
	}
	obj.SetResourceVersion(changed.GetResourceVersion())
	obj.SetFinalizers(changed.GetFinalizers())
	return nil
}
