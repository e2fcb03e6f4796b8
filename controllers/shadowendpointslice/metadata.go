// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package shadowendpointslice

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/controllers/internal/tenancy"
)

// dropDenied removes the labels and annotations that consumers must not set. The EndpointSlice is written without them.
// If it were not written at all, outdated endpoints would remain.
func (c *Controller) dropDenied(ctx context.Context, desired *unstructured.Unstructured) (*tenancy.Refusal, error) {
	if c.options.Policy == nil {
		return nil, nil
	}
	namespace := &corev1.Namespace{}
	if err := c.client.Get(ctx, client.ObjectKey{Name: desired.GetNamespace()}, namespace); err != nil {
		return nil, fmt.Errorf("getting namespace %s, %w", desired.GetNamespace(), err)
	}
	// The getters have returned copies, so the setters must be called.
	labels, annotations := desired.GetLabels(), desired.GetAnnotations()
	refusal := c.options.Policy.DropDenied(namespace, labels, annotations)
	desired.SetLabels(labels)
	desired.SetAnnotations(annotations)
	return refusal, nil
}
