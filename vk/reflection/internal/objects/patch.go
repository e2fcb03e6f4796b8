// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/internal/jsonpatch"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
	"github.com/refract-project/refract/vk/reflection/internal/readonly"
)

// PatchLocal patches an object of this cluster if its UID has not changed. If the object no longer exists, it returns
// nil without an error.
func (o *Writer) PatchLocal(ctx context.Context, local *unstructured.Unstructured, patch jsonpatch.Patch, subresources ...string) (*unstructured.Unstructured, error) {
	key := raw.Key(local)
	if err := readonly.Refuse(ctx, "patch", o.sourceKind, key.Namespace, key.Name); err != nil {
		return nil, err
	}
	patch.Test("/metadata/uid", string(local.GetUID())) // another object may have taken the name
	defer o.queue.Writing(o.localWrites, key)()
	stored, err := o.clients.PatchLocal(ctx, o.source, o.sourceKind, key, patch, subresources...)
	if apierrors.IsNotFound(err) {
		return nil, nil // this is not an error, because the watch will report the deletion
	}
	if err != nil {
		return nil, err
	}
	o.writes.Count("patch", "local")
	o.localWrites.Wrote(key, local, stored)
	return stored, nil
}
