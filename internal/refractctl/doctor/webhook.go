// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/release"
)

// NotCalled describes the consequences and the remedy if the API server does not call the webhook.
const NotCalled = "the API server does not call the webhook, so new pods stay in this cluster: control plane nodes must reach the pods of the controller manager " +
	"(a network policy, a firewall, or a control plane without the pod network are the usual reasons); the log of the API server names the error"

// Rejected describes the consequences and the remedy if the API server does not reach the webhook and the webhook's
// failurePolicy is Fail.
const Rejected = "the API server does not reach the webhook, whose failurePolicy is Fail, so new pods of offloaded namespaces are rejected: control plane nodes must reach the pods " +
	"of the controller manager (a network policy, a firewall, or a control plane without the pod network are the usual reasons); to admit pods until then, run refractctl install --set=webhook.failurePolicy=Ignore"

// IsRejection reports whether a pod was rejected because the API server does not reach the webhook.
func IsRejection(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), fmt.Sprintf("failed calling webhook %q", podWebhook))
}

// podWebhook is the name of the webhook for new pods in the webhook configuration.
const podWebhook = "pods.scheduling.refract.io"

func (p *Examination) checkWebhook(ctx context.Context, installed *release.Installation) error {
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	err := p.Client.Get(ctx, client.ObjectKey{Name: rbac.WebhookName}, configuration)
	switch {
	case apierrors.IsNotFound(err):
		p.addFinding("webhook", Warning, "it is not installed: pods of offloaded namespaces must tolerate virtual nodes themselves, and quotas are not enforced; upgrade with --set webhook.enabled=true")
		return nil
	case err != nil:
		return err
	}
	for _, w := range configuration.Webhooks {
		if len(w.ClientConfig.CABundle) == 0 {
			p.addFinding("webhook "+w.Name, Error, "it has no CA bundle, which the controller manager adds: see kubectl -n %s logs deployment/%s-controller-manager", installed.Namespace, installed.Name)
			return nil
		}
	}
	if err := p.checkWebhookAuthority(ctx, configuration, installed); err != nil {
		return err
	}
	extended := &offloading.NamespaceOffloadingList{}
	if err := p.Client.List(ctx, extended); err != nil {
		return err
	}
	for i := range extended.Items {
		if nso := &extended.Items[i]; nso.Status.OffloadingPhase == offloading.ReadyOffloadingPhaseType && nso.Spec.PodOffloadingStrategy != offloading.LocalPodOffloadingStrategyType {
			called, err := WebhookCalled(ctx, p.Client, nso.Namespace)
			switch {
			case IsRejection(err):
				p.addFinding("webhook", Error, "%s (%v)", Rejected, err)
			case err != nil:
				p.addFinding("webhook", Warning, "it has its certificates, but whether the API server calls it could not be tested: %v", err)
			case !called:
				p.addFinding("webhook", Error, NotCalled)
			default:
				p.addFinding("webhook", OK, "it is called")
			}
			return nil
		}
	}
	p.addFinding("webhook", OK, "it has its certificates")
	return nil
}

// WebhookCalled reports whether the API server calls the webhook for a new pod of an offloaded namespace. It tests
// this by creating a pod with a dry run.
func WebhookCalled(ctx context.Context, c client.Client, namespace string) (bool, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "refract-doctor-"},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: ptr.To(false),
			// The pod is valid even with the most restrictive Pod Security level.
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "none", Image: "registry.invalid/none",
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
	if err := c.Create(ctx, pod, client.DryRunAll); err != nil {
		return false, fmt.Errorf("trying to create a pod in namespace %s, %w", namespace, err)
	}
	for _, toleration := range pod.Spec.Tolerations {
		if toleration.Key == wire.VirtualNodeTaint {
			return true, nil
		}
	}
	return false, nil
}
