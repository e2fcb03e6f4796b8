// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package replicator_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/admission"
)

// refuseUpdates creates an admission policy on the provider that refuses updates of a copy with the given reason, until
// end is called or the test ends.
func refuseUpdates(t *testing.T, copied *offloading.NamespaceMap, reason metav1.StatusReason) (end func()) {
	t.Helper()
	name := "refuses-" + copied.Namespace
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{offloading.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: []string{"namespacemaps"}},
			}}}},
			MatchConditions: []admissionv1.MatchCondition{{Name: "namespace", Expression: fmt.Sprintf("request.namespace == %q", copied.Namespace)}},
			Validations:     []admissionv1.Validation{{Expression: "false", Message: "no changes during the audit", Reason: &reason}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
	provider.Create(t, policy)
	provider.Create(t, binding)
	end = func() {
		for _, object := range []client.Object{binding, policy} {
			assert.NoError(t, client.IgnoreNotFound(provider.Client.Delete(context.WithoutCancel(t.Context()), object)))
		}
	}
	t.Cleanup(end)
	controllertest.Eventually(t, "the policy to be in force", func() error {
		err := provider.Client.Patch(t.Context(), copied.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"probe":"true"}}}`)), client.DryRunAll)
		if admission.DenyingPolicy(err) != name {
			return fmt.Errorf("the attempt ends with %v", err)
		}
		return nil
	})
	return end
}

// TestARefusedUpdateOfACopyIsNamedAndRetried checks that if the provider's admission refuses an update of a copy, an
// Event about the map contains the reason. The status must still be copied, and the map of another provider must still
// be replicated. The update must be retried at increasing intervals until the provider accepts it.
func TestARefusedUpdateOfACopyIsNamedAndRetried(t *testing.T) {
	m := consumer.StartManager(t)
	for id, reason := range map[string]metav1.StatusReason{"rieti": metav1.StatusReasonForbidden, "rovigo": metav1.StatusReasonInvalid} {
		here, there := peer(t, id)
		local := outgoing(here, id, map[string]string{"shop": "shop-home"})
		consumer.Create(t, local)
		copied := awaitDesired(t, &provider, there, id, local.Spec.DesiredMapping)
		end := refuseUpdates(t, copied, reason)
		sent := func() float64 {
			return m.Metric(t, "refract_controller_api_writes_total", "controller", "replicator", "verb", "patch", "destination", "provider")
		}
		before := sent()
		consumer.Patch(t, local, `{"spec":{"desiredMapping":{"bank":"bank-home"}}}`)
		note := consumer.AwaitEvent(t, here, offloading.NamespaceMapKind, id, "FailedReplication").Note
		assert.Contains(t, note, "provider "+id+" refused the request")
		assert.Contains(t, note, "no changes during the audit")

		provider.PatchStatus(t, copied, `{"status":{"currentMapping":{"shop":{"remoteNamespace":"shop-home","phase":"Accepted"}}}}`)
		controllertest.Eventually(t, "the status", func() error {
			if consumer.Get(t, local, here, id); local.Status.CurrentMapping["shop"].Phase != offloading.MappingAccepted {
				return fmt.Errorf("it is %v", local.Status)
			}
			return nil
		})
		besideHere, besideThere := peer(t, id+"-beside")
		beside := outgoing(besideHere, id+"-beside", map[string]string{"shop": "shop-home"})
		consumer.Create(t, beside)
		awaitDesired(t, &provider, besideThere, id+"-beside", beside.Spec.DesiredMapping)
		require.Less(t, sent()-before, 25., "attempts, while the delay between them doubles")

		end()
		awaitDesired(t, &provider, there, id, map[string]string{"shop": "shop-home", "bank": "bank-home"})
	}
}
