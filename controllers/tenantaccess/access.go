// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenantaccess

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/fresh"
	"github.com/refract-project/refract/internal/rbac"
)

const managedByLabel = "app.kubernetes.io/managed-by"

// isOfRefractctl reports whether refractctl created the RoleBinding.
func isOfRefractctl(object client.Object) bool {
	return object.GetLabels()[managedByLabel] == wire.ManagedByRefractctl
}

// bindings returns the RoleBindings with which refractctl admits a consumer to its tenant namespace. The first one
// gives the consumer's controllers access, and always exists. The second one lets the consumer renew its certificate.
func (c *Controller) bindings(namespace, consumer string) []*rbacv1.RoleBinding {
	peer := rbac.Peer(c.options.RolePrefix, consumer)
	var all []*rbacv1.RoleBinding
	for _, object := range []rbac.Object{peer.TenantNamespace(namespace), peer.Renewal(namespace)} {
		if binding, ok := object.(*rbacv1.RoleBinding); ok {
			all = append(all, binding)
		}
	}
	return all
}

// ownerOf returns the reference to the Tenant that owns a RoleBinding, or nil if no Tenant owns it.
func ownerOf(binding *rbacv1.RoleBinding) *metav1.OwnerReference {
	for i := range binding.OwnerReferences {
		if owner := &binding.OwnerReferences[i]; owner.APIVersion == auth.GroupVersion.String() && owner.Kind == auth.TenantKind {
			return owner
		}
	}
	return nil
}

// revokeOrphans removes the subjects of RoleBindings whose Tenant no longer exists. The garbage collector deletes these
// RoleBindings only later.
func (c *Controller) revokeOrphans(ctx context.Context, namespace, consumer string, owner *metav1.OwnerReference) error {
	tenants := &auth.TenantList{}
	if err := c.live.List(ctx, tenants, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing the Tenants in namespace %s, %w", namespace, err)
	}
	if len(tenants.Items) > 0 {
		return nil // the Tenant exists, but is not in the cache yet
	}
	gone := &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: owner.Name, UID: owner.UID, DeletionTimestamp: ptr.To(metav1.Now())}, Spec: auth.TenantSpec{ClusterID: core.ClusterID(consumer)}}
	_, err := c.setAccess(ctx, gone, false)
	return err
}

// setAccess adds the subjects to a consumer's RoleBindings, or removes them, and makes the Tenant an owner of the
// RoleBindings. bound reports whether refractctl has admitted the consumer.
func (c *Controller) setAccess(ctx context.Context, tenant *auth.Tenant, admitted bool) (bound bool, err error) {
	owned := false
	for at, desired := range c.bindings(tenant.Namespace, string(tenant.Spec.ClusterID)) {
		present := &rbacv1.RoleBinding{}
		err := c.client.Get(ctx, client.ObjectKeyFromObject(desired), present)
		switch {
		case apierrors.IsNotFound(err) || err == nil && !isOfRefractctl(present):
			continue
		case err != nil:
			return false, fmt.Errorf("getting RoleBinding %s, %w", client.ObjectKeyFromObject(desired), err)
		}
		if at == 0 {
			bound, owned = true, isCurrent(tenant, present)
		}
		if err := c.setSubjects(ctx, tenant, present, desired.Subjects, admitted, owned); err != nil {
			return false, err
		}
	}
	return bound, nil
}

// isCurrent reports whether a Tenant belongs to the present RoleBinding. A Tenant that belongs to a former RoleBinding
// will be deleted, and the present RoleBinding must not be deleted with it.
func isCurrent(tenant *auth.Tenant, binding *rbacv1.RoleBinding) bool {
	for _, owner := range tenant.OwnerReferences {
		if owner.Kind == "RoleBinding" && owner.UID != binding.UID {
			return false
		}
	}
	return true
}

// setSubjects restores the subjects of a RoleBinding without subjects, or removes all of its subjects. If owned is
// true, it makes the Tenant the owner of the RoleBinding.
func (c *Controller) setSubjects(ctx context.Context, tenant *auth.Tenant, present *rbacv1.RoleBinding, subjects []rbacv1.Subject, admitted, owned bool) error {
	leaving := tenant.DeletionTimestamp != nil
	isOwner := func(owner metav1.OwnerReference) bool { return owner.UID == tenant.UID }
	if leaving && !slices.ContainsFunc(present.OwnerReferences, isOwner) {
		return nil
	}
	changed, reason, note := present.DeepCopy(), "", ""
	switch {
	case admitted && len(present.Subjects) == 0:
		if err := fresh.Check(ctx, c.client, c.live, tenant); err != nil {
			return err
		}
		changed.Subjects, reason, note = subjects, restoredReason, fmt.Sprintf("RoleBinding %s grants consumer %s access again", present.Name, tenant.Spec.ClusterID)
	case !admitted && len(present.Subjects) > 0:
		changed.Subjects, reason, note = nil, revokedReason, fmt.Sprintf("removed the subjects of RoleBinding %s, so consumer %s has no access by it", present.Name, tenant.Spec.ClusterID)
	}
	switch {
	case leaving:
		changed.OwnerReferences = slices.DeleteFunc(changed.OwnerReferences, isOwner)
	case owned:
		changed.OwnerReferences = withOwner(changed.OwnerReferences, metav1.OwnerReference{APIVersion: auth.GroupVersion.String(), Kind: auth.TenantKind, Name: tenant.Name, UID: tenant.UID})
	}
	if equality.Semantic.DeepEqual(present, changed) {
		return nil
	}
	if err := c.client.Patch(ctx, changed, client.MergeFromWithOptions(present, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("patching RoleBinding %s, %w", client.ObjectKeyFromObject(present), err)
	}
	if reason != "" {
		c.report.Tell(tenant, changed, reason, admitAction, note)
	}
	return nil
}

// withOwner returns owners with the given owner reference, which replaces a reference of the same kind.
func withOwner(owners []metav1.OwnerReference, owner metav1.OwnerReference) []metav1.OwnerReference {
	for i := range owners {
		if owners[i].APIVersion == owner.APIVersion && owners[i].Kind == owner.Kind {
			owners[i] = owner
			return owners
		}
	}
	return append(owners, owner)
}
