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

// Forbid revokes a permission of the controllers until mend is called or the test ends. It must not be used in parallel
// tests, because it affects all managers in the cluster.
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
	role.Rules = slices.DeleteFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return len(rule.Verbs) == 0 })
	set := func(allowed bool) {
		if err := c.Client.Update(context.WithoutCancel(t.Context()), role); err != nil {
			t.Errorf("setting the rules of %s: %v", managerRole, err)
			return
		}
		c.AwaitAccess(t, authorizationv1.SubjectAccessReviewSpec{
			User: ManagerUser, ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: groupOf(whole, resource), Resource: resource},
		}, allowed)
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

// groupOf returns the API group of a resource in a role.
func groupOf(role *rbacv1.ClusterRole, resource string) string {
	group := ""
	for _, rule := range role.Rules {
		if slices.Contains(rule.Resources, resource) {
			group = rule.APIGroups[0]
		}
	}
	return group
}

// AwaitAccess waits until the API server allows or denies access as expected. A change of roles takes effect after a
// short delay.
func (c *Cluster) AwaitAccess(t *testing.T, access authorizationv1.SubjectAccessReviewSpec, allowed bool) {
	t.Helper()
	Eventually(t, "the API server to act on changed roles", func() error {
		review := &authorizationv1.SubjectAccessReview{Spec: access}
		if err := c.Client.Create(context.WithoutCancel(t.Context()), review); err != nil {
			return err
		}
		if review.Status.Allowed != allowed {
			return fmt.Errorf("%s %s by %s is allowed: %t", access.ResourceAttributes.Verb, access.ResourceAttributes.Resource, access.User, review.Status.Allowed)
		}
		return nil
	})
}
