// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/refract-project/refract/internal/admission"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// TestStatusesThatAPolicyOfThisClusterDenies checks that if an admission policy of this cluster denies a reflected
// status, an Event of the local object contains the policy's name, for each kind that shows a status, and that the
// status is written once the policy allows it.
func TestStatusesThatAPolicyOfThisClusterDenies(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *reflection.Options) {
		o.Kinds = reflectiontest.Kinds(reflection.PodKind, reflection.ServiceKind, reflection.IngressKind)
	})
	name := "denies-statuses-" + l.Namespace
	l.Local.Create(t, "", fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %s}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: ["", networking.k8s.io], apiVersions: [v1], operations: [UPDATE], resources: [pods/status, services/status, ingresses/status]}]
  matchConditions: [{name: ours, expression: "request.namespace == '%s' && request.userInfo.username == 'kubelet-%s'"}]
  validations: [{expression: "namespaceObject.metadata.?labels['allowed'].orValue('') == 'true'"}]`, name, l.Namespace, l.Node))
	l.Local.Create(t, "", fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: %[1]s}, spec: {policyName: %[1]s, validationActions: [Deny]}}`, name))
	const balanced = `{loadBalancer: {ingress: [{ip: 192.0.2.7}]}}`
	l.Pod("web")
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: LoadBalancer, ports: [{port: 80}]}}`)
	l.Local.Create(t, l.Namespace, `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web}, spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}}`)
	kubelet := reflectiontest.Must(dynamic.NewForConfig(l.Options.Local))(t)
	l.Eventually(func() error {
		_, err := kubelet.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(l.Namespace).Patch(t.Context(), "web", types.MergePatchType, []byte(`{"status":{"message":"x"}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		if admission.DenyingPolicy(err) != name {
			return errors.Join(errors.New("the policy is not in force"), err)
		}
		return nil
	})
	l.Start()
	l.RunRemote("web", `{phase: Running, startTime: "2026-01-01T00:00:00Z"}`)
	for _, kind := range []string{reflection.ServiceKind, "Ingress"} {
		l.Present(l.Remote, kind, l.RemoteNS, "web")
		l.Remote.PatchYAML(t, kind, l.RemoteNS, "web", `{status: `+balanced+`}`, "status")
	}
	for _, kind := range []string{reflection.PodKind, reflection.ServiceKind, "Ingress"} {
		l.Event(l.Namespace, kind, "web", "Warning", admission.DeniedReason, name)
	}
	l.Local.PatchYAML(t, "Namespace", "", l.Namespace, `{metadata: {labels: {allowed: "true"}}}`)
	for _, kind := range []string{reflection.ServiceKind, "Ingress"} {
		l.Present(l.Local, kind, l.Namespace, "web", reflectiontest.Addresses("192.0.2.7"))
	}
	l.Present(l.Local, reflection.PodKind, l.Namespace, "web", reflectiontest.Field("status.phase", "Running"))
}
