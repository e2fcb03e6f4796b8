// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"context"
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Mutate creates an admission policy that changes new objects of a resource in a namespace, until end is called or the
// test ends. The expression must return JSON patches. Mutate waits until the policy is enforced: it creates probe, an
// object of the resource, until changed returns true.
func (c *Cluster) Mutate(t *testing.T, name, group, resource, namespace, expression string, probe client.Object, changed func() bool) (end func()) {
	t.Helper()
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
			}}}},
			MatchConditions: []admissionv1.MatchCondition{{Name: "namespace", Expression: fmt.Sprintf("request.namespace == %q", namespace)}},
			Mutations:       []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: expression}}},
		},
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}
	c.Create(t, policy)
	c.Create(t, binding)
	end = func() {
		for _, object := range []client.Object{binding, policy} {
			if err := client.IgnoreNotFound(c.Client.Delete(context.WithoutCancel(t.Context()), object)); err != nil {
				t.Errorf("deleting %T %s: %v", object, name, err)
			}
		}
	}
	t.Cleanup(end)
	probe.SetNamespace(namespace)
	Eventually(t, "policy "+name+" to be in force", func() error {
		probe.SetResourceVersion("")
		probe.SetUID("")
		if err := c.Client.Create(t.Context(), probe, client.DryRunAll); err != nil {
			return err
		}
		if !changed() {
			return fmt.Errorf("it does not change %v", probe)
		}
		return nil
	})
	return end
}
