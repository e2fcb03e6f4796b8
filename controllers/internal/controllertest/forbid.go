// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

const managerRole = "liqo-controller-manager"

// Forbid revokes a permission of the controllers until mend is called, or the
// test ends. It affects every manager on the cluster: not for parallel tests.
func (c *Cluster) Forbid(t *testing.T, verb, resource string) (mend func()) {
	t.Helper()
	role := &rbacv1.ClusterRole{}
	c.Get(t, role, "", managerRole)
	whole := role.DeepCopy()
	for i := range role.Rules {
		if slices.Contains(role.Rules[i].Resources, resource) {
			role.Rules[i].Verbs = slices.DeleteFunc(role.Rules[i].Verbs, func(v string) bool { return v == verb })
		}
	}
	set := func(allowed bool) {
		if err := c.Client.Update(context.WithoutCancel(t.Context()), role); err != nil {
			t.Errorf("setting the rules of %s: %v", managerRole, err)
			return
		}
		Eventually(t, "the API server to know the role", func() error { return c.permits(t, whole, verb, resource, allowed) })
	}
	set(false)
	mended := false
	mend = func() {
		if !mended {
			mended, role.Rules = true, slices.Clone(whole.Rules)
			set(true)
		}
	}
	t.Cleanup(mend)
	return mend
}

// permits checks whether the controllers have the right or not.
func (c *Cluster) permits(t *testing.T, role *rbacv1.ClusterRole, verb, resource string, want bool) error {
	group := ""
	for _, rule := range role.Rules {
		if slices.Contains(rule.Resources, resource) {
			group = rule.APIGroups[0]
		}
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: ManagerUser, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource},
	}}
	if err := c.Client.Create(context.WithoutCancel(t.Context()), review); err != nil {
		return err
	}
	if review.Status.Allowed != want {
		return fmt.Errorf("%s %s is allowed: %t", verb, resource, review.Status.Allowed)
	}
	return nil
}
