// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/progress"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/cluster"
)

// FindAccess returns the bindings whose subjects include the consumer's user, its group, its ServiceAccount, or all
// ServiceAccounts of its tenant namespace. Bindings that are being deleted, or that remover has removed, are omitted.
// remover may be nil.
func (t Tenant) FindAccess(ctx context.Context, remover *cluster.Remover) (access []*metav1.PartialObjectMetadata, err error) {
	c := t.Provider
	subjects := []rbacv1.Subject{rbac.User(t.Consumer), rbac.Group(t.Consumer), rbac.ServiceAccount(t.Namespace(), wire.ConsumerServiceAccount), rbac.Group(serviceaccount.MakeNamespaceGroupName(t.Namespace()))}
	add := func(kind string, object metav1.ObjectMeta, bound []rbacv1.Subject) {
		binds := slices.ContainsFunc(bound, func(subject rbacv1.Subject) bool { return slices.Contains(subjects, subject) })
		if binds && object.DeletionTimestamp == nil && (remover == nil || !remover.HasRemoved(object.UID)) {
			found := &metav1.PartialObjectMetadata{ObjectMeta: object}
			found.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind(kind))
			access = append(access, found)
		}
	}
	roles, clusterRoles := &rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleBindingList{}
	if err := c.Client.List(ctx, roles); err != nil {
		return nil, fmt.Errorf("cluster %s: listing RoleBindings, by which the consumer may have access still, %w", c.Name, err)
	}
	if err := c.Client.List(ctx, clusterRoles); err != nil {
		return nil, fmt.Errorf("cluster %s: listing ClusterRoleBindings, by which the consumer may have access still, %w", c.Name, err)
	}
	for i := range roles.Items {
		add("RoleBinding", roles.Items[i].ObjectMeta, roles.Items[i].Subjects)
	}
	for i := range clusterRoles.Items {
		add("ClusterRoleBinding", clusterRoles.Items[i].ObjectMeta, clusterRoles.Items[i].Subjects)
	}
	return access, nil
}

// ReportLeft reports the objects that were left on the provider, and who can remove them. It returns an error if any of
// them gives the consumer access.
func (t Tenant) ReportLeft(ctx context.Context, remover *cluster.Remover, access []*metav1.PartialObjectMetadata, report progress.Reporter) error {
	c := t.Provider
	for _, binding := range access {
		if !slices.ContainsFunc(remover.Left(), func(left *metav1.PartialObjectMetadata) bool {
			return cluster.Describe(left) == cluster.Describe(binding)
		}) {
			remover.RecordLeft(binding.GroupVersionKind(), binding.Namespace, binding.Name)
		}
	}
	for _, left := range remover.Left() {
		found, _, err := c.Find(ctx, left)
		if err != nil {
			return err
		}
		if found != nil {
			report.Report("%s: warning: left %s: %s", c.ID(), cluster.Describe(found), remedyFor(found))
		}
	}
	if len(access) == 0 {
		return nil
	}
	names, remedies := sets.New[string](), sets.New[string]()
	for _, binding := range access {
		names.Insert(cluster.Describe(binding))
		remedies.Insert(remedyFor(binding))
	}
	return fmt.Errorf("cluster %s: %s still has access, by %s: %s, and run the command again",
		c.Name, t.Consumer, strings.Join(sets.List(names), " and "), strings.Join(sets.List(remedies), "; "))
}

// Annotations of the objects of a Helm release. Helm does not delete objects with the policy keep.
const (
	helmPolicy           = "helm.sh/resource-policy"
	helmRelease          = "meta.helm.sh/release-name"
	helmReleaseNamespace = "meta.helm.sh/release-namespace"
)

// remedyFor returns instructions for removing an object that refractctl has left.
func remedyFor(object *metav1.PartialObjectMetadata) string {
	owner, release := metav1.GetControllerOf(object), object.Annotations[helmRelease]
	switch {
	case owner != nil:
		return fmt.Sprintf("delete its owner, %s %s", owner.Kind, owner.Name)
	case object.Annotations[helmPolicy] == "keep":
		return "Helm keeps it: delete it with kubectl when nothing in it is needed"
	case release != "":
		return fmt.Sprintf("remove the consumer from the values of Helm release %s in namespace %s (consumers)", release, object.Annotations[helmReleaseNamespace])
	case cluster.IsOurs(object):
		return "it goes with the rest of the peering"
	}
	return "delete it with kubectl, refractctl has not created it"
}
