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

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/brake"
	"github.com/refract-project/refract/controllers/internal/report"
)

// The label of this controller's RoleBindings. Only RoleBindings with this label are cached.
const managedByLabel, managedBy = "app.kubernetes.io/managed-by", "liqo"

// bindVirtualKubelets grants the virtual kubelets of the selected providers permission to read the reflected objects in
// the namespace, and revokes the permission of all others. This matters most for Secrets, which virtual kubelets cannot
// read in other namespaces. A virtual kubelet authenticates as the ServiceAccount with the name and namespace of its
// VirtualNode. The virtual kubelets of doubtful providers, whose selection is uncertain, keep existing access but get
// no new access. If no subjects are left, the RoleBinding is deleted. A RoleBinding with another owner is never
// changed.
func (c *Controller) bindVirtualKubelets(ctx context.Context, namespace string, selected, doubtful []*provider) error {
	if c.options.ExtendedClusterRole == "" {
		return nil
	}
	desired := c.desiredBinding(namespace, selected)
	actual, err := c.existingBinding(ctx, desired)
	if actual != nil && isOurs(actual, desired) {
		desired.Subjects = mergeSubjects(desired.Subjects, boundSubjects(subjectsOf(doubtful), actual.Subjects))
	}
	switch {
	case err != nil:
		return err
	case len(desired.Subjects) == 0:
		return c.deleteBinding(ctx, actual, desired)
	case actual == nil:
		// The RoleBinding was just created with the desired content.
		return nil
	case !isOurs(actual, desired):
		return report.Errorf(report.Foreign, "RoleBinding %s, which grants virtual kubelets access to the namespace, was not created by this controller "+
			"(ours has the label %s=%s and refers to ClusterRole %s): delete it to have it recreated",
			client.ObjectKeyFromObject(actual), managedByLabel, managedBy, desired.RoleRef.Name)
	case equality.Semantic.DeepEqual(actual.Subjects, desired.Subjects):
		return nil
	}
	changed := actual.DeepCopy()
	changed.Subjects = desired.Subjects
	// The patch contains the resource version, because the owner of the RoleBinding may have changed in the meantime.
	locked := client.MergeFromWithOptions(actual, client.MergeFromWithOptimisticLock{})
	if err := c.client.Patch(ctx, changed, locked, client.FieldOwner(fieldManager), describeSubjects(desired.Subjects)); err != nil {
		return fmt.Errorf("updating RoleBinding %s, %w", client.ObjectKeyFromObject(actual), err)
	}
	return nil
}

// existingBinding returns the RoleBinding with the name of desired. If there is none but one is needed, it creates the
// RoleBinding and returns nil. The cache does not contain RoleBindings of other clients and, for a moment, RoleBindings
// that were just created. Therefore it reads from the API server before each write. Otherwise, a RoleBinding with
// another owner would cause a rejected write in every attempt.
func (c *Controller) existingBinding(ctx context.Context, desired *rbacv1.RoleBinding) (*rbacv1.RoleBinding, error) {
	key, actual := client.ObjectKeyFromObject(desired), &rbacv1.RoleBinding{}
	err := c.client.Get(ctx, key, actual)
	if apierrors.IsNotFound(err) {
		if len(desired.Subjects) == 0 {
			return nil, nil
		}
		err = c.uncached.Get(ctx, key, actual)
	}
	switch {
	case err == nil:
		return actual, nil
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("getting RoleBinding %s, %w", key, err)
	}
	if err := c.client.Create(ctx, desired.DeepCopy(), client.FieldOwner(fieldManager), describeSubjects(desired.Subjects)); err != nil {
		return nil, fmt.Errorf("granting virtual kubelets access to the namespace: creating RoleBinding %s, %w", key, err)
	}
	return nil, nil
}

// deleteBinding deletes the RoleBinding if this controller owns it. The deletion fails if the RoleBinding has changed
// since it was read.
func (c *Controller) deleteBinding(ctx context.Context, actual, desired *rbacv1.RoleBinding) error {
	if actual == nil || !isOurs(actual, desired) {
		return nil
	}
	err := c.client.Delete(ctx, actual, client.Preconditions{UID: &actual.UID, ResourceVersion: &actual.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting RoleBinding %s, %w", client.ObjectKeyFromObject(actual), err)
	}
	return nil
}

func isOurs(actual, desired *rbacv1.RoleBinding) bool {
	return actual.Labels[managedByLabel] == managedBy && actual.RoleRef == desired.RoleRef
}

// describeSubjects returns the desired content of a RoleBinding.
func describeSubjects(subjects []rbacv1.Subject) brake.Desired {
	return brake.Desired(fmt.Sprint(subjects))
}

// warnOfAccess warns the user of an error of bindVirtualKubelets. It does not warn if a retry can resolve the error, or
// if an Event already reports that another client keeps changing the RoleBinding.
func (c *Controller) warnOfAccess(nso *offloading.NamespaceOffloading, err error) {
	if brake.IsFight(err) {
		return
	}
	note := err.Error()
	switch report.ClassOf(err) {
	case report.Conflict, report.Throttled, report.Unavailable:
		return
	// The error already contains the remedy.
	case report.Foreign:
	default:
		note += "; grant the controller manager permission to create, patch and delete the RoleBinding " + c.options.ExtendedClusterRole +
			" and to bind the ClusterRole of that name"
	}
	c.report.Warn(nso, accessReason, offloadAction, note)
}

// isStranger reports whether a VirtualNode gets no access, because it is outside the tenant namespace of its provider.
// Otherwise, a user who may create VirtualNodes in another namespace could let a ServiceAccount there read Secrets. The
// ServiceAccount with the reserved name belongs to a consumer of this cluster, and gets no access either.
func (p *provider) isStranger(n virtualNode) bool {
	return n.resource.Namespace != p.namespace || n.resource.Name == wire.ConsumerServiceAccount
}

// describeStrangers lists the virtual nodes that get no access, with the reasons.
func describeStrangers(admitted []*provider) string {
	var notes []string
	for _, p := range admitted {
		for _, n := range p.nodes {
			switch {
			case n.resource.Name == wire.ConsumerServiceAccount:
				notes = append(notes, fmt.Sprintf("VirtualNode %s gets no access to this namespace: its name is reserved, recreate it under another name", client.ObjectKeyFromObject(n.resource)))
			case p.isStranger(n):
				notes = append(notes, fmt.Sprintf("the virtual kubelet of VirtualNode %s has no access to this namespace: the tenant namespace of cluster %s is %s; create the VirtualNode there",
					client.ObjectKeyFromObject(n.resource), p.id, p.namespace))
			}
		}
	}
	return strings.Join(notes, "; ")
}

// subjectsOf returns the ServiceAccounts of the virtual kubelets of the providers.
func subjectsOf(providers []*provider) (subjects []rbacv1.Subject) {
	for _, p := range providers {
		for _, n := range p.nodes {
			if p.isStranger(n) {
				continue
			}
			subjects = append(subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: n.resource.Namespace, Name: n.resource.Name})
		}
	}
	return subjects
}

// boundSubjects returns the subjects that are also in bound.
func boundSubjects(subjects, bound []rbacv1.Subject) []rbacv1.Subject {
	return slices.DeleteFunc(subjects, func(s rbacv1.Subject) bool { return !slices.Contains(bound, s) })
}

// mergeSubjects returns all subjects of a and b, sorted and without duplicates.
func mergeSubjects(a, b []rbacv1.Subject) []rbacv1.Subject {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(a, b rbacv1.Subject) int { return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name) })
	return slices.Compact(all)
}

func (c *Controller) desiredBinding(namespace string, selected []*provider) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.options.ExtendedClusterRole, Labels: map[string]string{managedByLabel: managedBy}},
		Subjects:   mergeSubjects(subjectsOf(selected), nil),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: c.options.ExtendedClusterRole},
	}
}
