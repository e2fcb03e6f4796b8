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

// isOurs is a CEL expression that is true if the toleration t is the one that this webhook adds.
const isOurs = `has(t.key) && t.key == "` + wire.VirtualNodeTaint + `" && has(t.operator) && t.operator == "Exists" && has(t.effect) && t.effect == "NoExecute" && !has(t.tolerationSeconds)`

// reviewed is a CEL expression that is true for requests that need a review: creations, and updates that replace the
// list of tolerations and drop the toleration of this webhook. The API server refuses such an update unless the
// webhook restores the toleration, just as the API server restores its own default tolerations.
const reviewed = `request.operation == "CREATE" || has(oldObject.spec.tolerations) && oldObject.spec.tolerations.exists(t, ` + isOurs +
	`) && !(has(object.spec.tolerations) && object.spec.tolerations.exists(t, ` + isOurs + `))`

// Configuration returns the webhook configuration that the chart installs. It selects the pods of offloaded
// namespaces, except in the namespace of the installation, whose pods serve the webhook.
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
			// A webhook that runs later may add an affinity. The terms of this webhook must then be combined with it.
			ReinvocationPolicy:      ptr.To(admissionregistrationv1.IfNeededReinvocationPolicy),
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          ptr.To(timeoutSeconds),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}
