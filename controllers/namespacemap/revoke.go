// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespacemap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/api/wire"
)

// revoke revokes the permissions that were granted for a tenant namespace that no longer belongs to a consumer, because
// it has lost its label or is gone. The consumer's map does not matter, and may not exist. The remote namespaces and
// their contents are kept. The bindings are kept, too, but without subjects. When the label is restored, the subjects
// are added again.
func (c *Controller) revoke(ctx context.Context, tenant string) error {
	bindings, err := c.bindingsOf(ctx, tenant)
	if err != nil {
		return err
	}
	var problems []error
	for i := range bindings {
		if len(bindings[i].Subjects) == 0 {
			continue
		}
		changed := bindings[i].DeepCopy()
		changed.Subjects = nil
		err := c.client.Patch(ctx, changed, client.MergeFrom(&bindings[i]), client.FieldOwner(fieldManager))
		if err != nil && !apierrors.IsNotFound(err) {
			problems = append(problems, fmt.Errorf("taking the subjects out of RoleBinding %s, %w", client.ObjectKeyFromObject(changed), err))
		}
	}
	return errors.Join(problems...)
}

// revokeOrphans revokes the permissions that were granted for a tenant namespace, if the namespace is gone or no longer
// belongs to a consumer.
func (c *Controller) revokeOrphans(ctx context.Context, tenant string) error {
	namespace := &corev1.Namespace{}
	err := c.uncached.Get(ctx, client.ObjectKey{Name: tenant}, namespace)
	if err == nil && namespace.Labels[wire.RemoteClusterIDLabel] != "" {
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting tenant namespace %s, %w", tenant, err)
	}
	return c.revoke(ctx, tenant)
}

// bindingsOf returns the RoleBindings that were created for maps in a tenant namespace.
func (c *Controller) bindingsOf(ctx context.Context, tenant string) ([]rbacv1.RoleBinding, error) {
	list := &rbacv1.RoleBindingList{}
	if err := c.client.List(ctx, list, client.MatchingLabels{managedByLabel: managedBy}); err != nil {
		return nil, fmt.Errorf("listing the RoleBindings of namespace %s, %w", tenant, err)
	}
	return slices.DeleteFunc(list.Items, func(b rbacv1.RoleBinding) bool {
		return !strings.HasPrefix(b.Annotations[wire.ManagedByNamespaceMapAnnotation], tenant+"/")
	}), nil
}
