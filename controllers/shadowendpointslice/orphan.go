// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowendpointslice

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/controllers/internal/fresh"
	"github.com/refract-project/refract/controllers/internal/shadows"
)

// deleteOrphan deletes the EndpointSlice with the given name if its ShadowEndpointSlice is gone. It returns the delay
// until the next call, or 0 if none is needed.
func (c *Controller) deleteOrphan(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	slice := newSlice()
	err := c.client.Get(ctx, key, slice)
	if apierrors.IsNotFound(err) {
		c.gone.Forget(key)
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("getting EndpointSlice %s, %w", key, err)
	}
	owner := kind.OwnerOf(slice)
	if owner == nil {
		return 0, nil
	}
	if err := c.gone.Check(ctx, key, owner.UID); err != nil {
		return 0, err
	}
	return shadows.Delete(ctx, c.client, slice)
}

// deletePredecessor deletes the EndpointSlice that belongs to an earlier ShadowEndpointSlice with the same name.
func (c *Controller) deletePredecessor(ctx context.Context, slice *unstructured.Unstructured) error {
	owner := kind.OwnerOf(slice)
	if owner == nil {
		return nil
	}
	if err := c.gone.Check(ctx, client.ObjectKeyFromObject(slice), owner.UID); err != nil {
		return err
	}
	_, err := shadows.Delete(ctx, c.client, slice) // the error can be ignored, because the caller retries in any case
	return err
}

// deleteDependent deletes the EndpointSlice of a ShadowEndpointSlice that is being deleted in the foreground. The
// foreground deletion waits until the EndpointSlice is gone.
func (c *Controller) deleteDependent(ctx context.Context, shadow *unstructured.Unstructured) (time.Duration, error) {
	slice := newSlice()
	err := c.client.Get(ctx, client.ObjectKeyFromObject(shadow), slice)
	if err != nil || !metav1.IsControlledBy(slice, shadow) {
		return 0, client.IgnoreNotFound(err)
	}
	if err := fresh.Check(ctx, c.client, c.uncached, shadow); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	return shadows.Delete(ctx, c.client, slice)
}
