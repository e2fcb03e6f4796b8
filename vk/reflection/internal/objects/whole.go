// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection/internal/content"
)

// Whole returns an object of this cluster with its content. If the content is not cached, it is read from the API
// server. Whole returns nil if the object no longer exists.
func (o *Writer) Whole(ctx context.Context, object *unstructured.Unstructured) (found *unstructured.Unstructured, err error) {
	if _, trimmed := content.DigestOf(object); !trimmed {
		return object, nil
	}
	err = o.clients.CallLocal(ctx, func(ctx context.Context) (err error) {
		found, err = o.clients.Local.Resource(o.source).Namespace(object.GetNamespace()).Get(ctx, object.GetName(), metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) || err == nil && found.GetUID() != object.GetUID() {
		return nil, nil // the watch will report the deletion
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s/%s, %w", o.sourceKind, object.GetNamespace(), object.GetName(), err)
	}
	return found, nil
}
