// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
)

// Consumer returns the ID of the consumer that a tenant namespace belongs to. It returns an empty string for other
// namespaces.
func Consumer(ctx context.Context, c client.Reader, namespace string) (string, error) {
	object := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: namespace}, object); err != nil {
		return "", fmt.Errorf("getting Namespace %s, %w", namespace, err)
	}
	if object.Labels[wire.TenantNamespaceLabel] != "true" {
		return "", nil
	}
	return object.Labels[wire.RemoteClusterIDLabel], nil
}
