// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package rbac

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Install creates the objects, and updates existing ones. The client must itself have the permissions that the
// objects grant, or be allowed to use the verb escalate.
func Install(ctx context.Context, client kubernetes.Interface, objects ...Object) error {
	for _, object := range objects {
		if err := installOne(ctx, client, object); err != nil {
			return fmt.Errorf("installing %T %s/%s, %w", object, object.GetNamespace(), object.GetName(), err)
		}
	}
	return nil
}

func installOne(ctx context.Context, client kubernetes.Interface, object Object) error {
	rbac := client.RbacV1()
	switch o := object.(type) {
	case *rbacv1.ClusterRole:
		return upsert(ctx, o, rbac.ClusterRoles())
	case *rbacv1.ClusterRoleBinding:
		return upsert(ctx, o, rbac.ClusterRoleBindings())
	case *rbacv1.Role:
		return upsert(ctx, o, rbac.Roles(o.Namespace))
	case *rbacv1.RoleBinding:
		return upsert(ctx, o, rbac.RoleBindings(o.Namespace))
	default:
		return fmt.Errorf("not an RBAC object")
	}
}

// writer is the common interface of the typed clients of all four kinds.
type writer[T any] interface {
	Create(context.Context, T, metav1.CreateOptions) (T, error)
	Update(context.Context, T, metav1.UpdateOptions) (T, error)
}

// upsert creates the object, or updates it if it exists. It tries to create it first, so that a new cluster needs
// only one request per object.
func upsert[T any](ctx context.Context, object T, client writer[T]) error {
	_, err := client.Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = client.Update(ctx, object, metav1.UpdateOptions{})
	}
	return err
}
