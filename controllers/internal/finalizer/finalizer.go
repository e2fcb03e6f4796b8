// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

// Package finalizer adds finalizers to objects and removes them.
package finalizer

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Ensure adds the finalizer to obj if present is true, and removes it if present is false. It sends at most one write,
// which fails if the object has been changed in the meantime. After a success, obj has the new finalizers and
// resourceVersion. It is not an error if the object no longer exists when the finalizer is removed.
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
