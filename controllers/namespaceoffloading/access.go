// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Bindings are found by the label that everything of ours bears.
const managedByLabel, managedBy = "app.kubernetes.io/managed-by", "liqo"

// admit lets the virtual kubelets of the selected providers, and nobody else,
// read what they reflect of the namespace: Secrets above all, which they may
// read nowhere else. A virtual kubelet authenticates as the ServiceAccount of
// the name of its VirtualNode, in its namespace.
func (c *Controller) admit(ctx context.Context, namespace string, selected []*provider) error {
	if c.options.ExtendedClusterRole == "" {
		return nil
	}
	desired := c.binding(namespace, selected)
	key := client.ObjectKeyFromObject(desired)
	actual := &rbacv1.RoleBinding{}
	err := c.client.Get(ctx, key, actual)
	switch {
	case apierrors.IsNotFound(err) && len(desired.Subjects) == 0:
		return nil
	case apierrors.IsNotFound(err):
		if err := c.client.Create(ctx, desired, client.FieldOwner(fieldManager)); err != nil {
			return fmt.Errorf("letting virtual kubelets into the namespace: creating RoleBinding %s, %w", key, err)
		}
		return nil
	case err != nil:
		return fmt.Errorf("getting RoleBinding %s, %w", key, err)
	case actual.RoleRef != desired.RoleRef:
		return fmt.Errorf("RoleBinding %s refers to %s, not %s, which cannot be changed: delete it, and it is made anew", key, actual.RoleRef.Name, desired.RoleRef.Name)
	case equality.Semantic.DeepEqual(actual.Subjects, desired.Subjects):
		return nil
	}
	changed := actual.DeepCopy()
	changed.Subjects = desired.Subjects
	if err := c.client.Patch(ctx, changed, client.MergeFrom(actual), client.FieldOwner(fieldManager)); err != nil {
		return fmt.Errorf("updating RoleBinding %s, %w", key, err)
	}
	return nil
}

func (c *Controller) binding(namespace string, selected []*provider) *rbacv1.RoleBinding {
	var subjects []rbacv1.Subject
	for _, p := range selected {
		for _, n := range p.nodes {
			subjects = append(subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: n.resource.Namespace, Name: n.resource.Name})
		}
	}
	slices.SortFunc(subjects, func(a, b rbacv1.Subject) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.options.ExtendedClusterRole, Labels: map[string]string{managedByLabel: managedBy}},
		Subjects:   subjects,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: c.options.ExtendedClusterRole},
	}
}
