// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/refract-project/refract/internal/admission"
)

// Deny creates an admission policy that denies an operation of the controllers in a namespace, until mend is called or
// the test ends. It waits until the API server denies attempt, which is called with the client of the controllers. A
// test must read the expected denials with Manager.Writes.Denied. Other denials fail the test.
func (c *Cluster) Deny(t *testing.T, name string, operation admissionv1.OperationType, group, resource, namespace string, attempt func(client.Client) error) (mend func()) {
	t.Helper()
	return c.DenyAs(t, name, metav1.StatusReasonForbidden, operation, group, resource, namespace, attempt)
}

// DenyAs is like Deny, with a policy that returns the given reason. Invalid is the default reason of policies. The API
// server also returns it for an outdated JSON patch.
func (c *Cluster) DenyAs(t *testing.T, name string, reason metav1.StatusReason, operation admissionv1.OperationType, group, resource, namespace string, attempt func(client.Client) error) (mend func()) {
	t.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{operation},
				Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
			}}}},
			MatchConditions: []admissionv1.MatchCondition{{Name: "controllers", Expression: fmt.Sprintf("request.userInfo.username == %q && request.namespace == %q", ManagerUser, namespace)}},
			Validations:     []admissionv1.Validation{{Expression: "false", Message: "the test denies this", Reason: &reason}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	c.Create(t, policy)
	c.Create(t, binding)
	mend = func() {
		for _, object := range []client.Object{binding, policy} {
			if err := client.IgnoreNotFound(c.Client.Delete(context.WithoutCancel(t.Context()), object)); err != nil {
				t.Errorf("deleting %T %s: %v", object, name, err)
			}
		}
	}
	t.Cleanup(mend)
	access, err := c.ConfigFor(ManagerUser)
	require.NoError(t, err)
	controllers, err := client.New(access, client.Options{Scheme: c.Client.Scheme()})
	require.NoError(t, err)
	Eventually(t, "policy "+name+" to be in force", func() error {
		if err := attempt(controllers); admission.DenyingPolicy(err) != name {
			return fmt.Errorf("the attempt ends with %v", err)
		}
		return nil
	})
	return mend
}
