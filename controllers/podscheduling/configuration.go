// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package podscheduling

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/refract-project/refract/api/wire"
)

// timeoutSeconds limits a call of the webhook. With a longer timeout, an outage delays every pod of an offloaded
// namespace for longer; with a shorter one, a short pause of the process already counts as an outage.
const timeoutSeconds int32 = 5

// isOurs is a CEL expression that is true if t is the toleration that this webhook adds.
const isOurs = `has(t.key) && t.key == "` + wire.VirtualNodeTaint + `" && has(t.operator) && t.operator == "Exists" && has(t.effect) && t.effect == "NoExecute" && !has(t.tolerationSeconds)`

// reviewed is a CEL expression that is true for requests that the webhook must review. These are creations, and updates
// that replace the list of tolerations without this webhook's toleration. The API server would reject such an update if
// the webhook did not restore the toleration. (The API server restores its own default tolerations in the same way.)
const reviewed = `request.operation == "CREATE" || has(oldObject.spec.tolerations) && oldObject.spec.tolerations.exists(t, ` + isOurs +
	`) && !(has(object.spec.tolerations) && object.spec.tolerations.exists(t, ` + isOurs + `))`

// Configuration returns the webhook configuration that the chart installs. It selects the pods in offloaded namespaces.
// The namespace of the installation is excluded, because the pods in it serve the webhook.
func Configuration(name, installation string, client admissionregistrationv1.WebhookClientConfig, policy admissionregistrationv1.FailurePolicyType) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:         "pods.scheduling.refract.io",
			ClientConfig: client,
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: ptr.To(admissionregistrationv1.NamespacedScope),
				},
			}},
			NamespaceSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{wire.SchedulingEnabledLabel: "true"},
				MatchExpressions: []metav1.LabelSelectorRequirement{
					{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{installation}},
				},
			},
			MatchConditions: []admissionregistrationv1.MatchCondition{{Name: "new-or-without-its-toleration", Expression: reviewed}},
			FailurePolicy:   &policy,
			MatchPolicy:     ptr.To(admissionregistrationv1.Equivalent),
			// A webhook that is called later may add an affinity, which must then be combined with the terms of this
			// webhook.
			ReinvocationPolicy:      ptr.To(admissionregistrationv1.IfNeededReinvocationPolicy),
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          ptr.To(timeoutSeconds),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}
