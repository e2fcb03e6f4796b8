// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// TestObjectsThatAPolicyDenies checks that if an admission policy of the provider denies an object, an Event of the
// local object contains the policy's message, and the object is reflected as soon as the policy allows it.
func TestObjectsThatAPolicyDenies(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete", func(o *reflection.Options) {
		o.Kinds = append(o.Kinds, reflectiontest.Kinds(reflection.ServiceKind, reflection.IngressKind, reflection.SecretKind)...)
	})
	const remedy = "ask for --tenant-limit"
	name := "denying-" + l.RemoteNS
	l.Remote.Create(t, "", fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %s}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: ["", networking.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [persistentvolumeclaims, services, ingresses, secrets]}]
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}
  validations: [{expression: "namespaceObject.metadata.?labels['allowed'].orValue('') == 'true'", reason: Forbidden, message: %s}]`, name, l.RemoteNS, remedy))
	l.Remote.Create(t, "", fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: %s}, spec: {policyName: %s, validationActions: [Deny]}}`, name, name))
	l.Eventually(l.denied)
	l.Start()
	l.claim("data", l.Node)
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: ExternalName, externalName: example.com}}`)
	l.Local.Create(t, l.Namespace, `{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: web}, spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}}`)
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: Secret, metadata: {name: token}, type: bootstrap.kubernetes.io/token}`)
	l.Event(l.Namespace, reflection.ClaimKind, "data", "Warning", "PolicyDenied", remedy, l.ID)
	l.Event(l.Namespace, reflection.ServiceKind, "web", "Warning", "PolicyDenied", remedy, l.ID)
	l.Event(l.Namespace, "Ingress", "web", "Warning", "PolicyDenied", remedy, l.ID)
	l.Event(l.Namespace, reflection.SecretKind, "token", "Warning", "PolicyDenied", remedy, l.ID)

	l.Remote.PatchYAML(t, "Namespace", "", l.RemoteNS, `{metadata: {labels: {allowed: "true"}}}`)
	l.Present(l.Remote, reflection.ServiceKind, l.RemoteNS, "web")
	l.Present(l.Remote, "Ingress", l.RemoteNS, "web")
	l.Present(l.Remote, reflection.SecretKind, l.RemoteNS, "token")
	l.bound("data")
}

// denied returns an error unless a policy denies a Secret in the remote namespace.
func (l *claimLab) denied() error {
	secret := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "probe"}}}
	_, err := l.Remote.Of("Secret", l.RemoteNS).Create(l.Context(), secret, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if !apierrors.IsForbidden(err) {
		return fmt.Errorf("the policy does not deny: %v", err)
	}
	return nil
}
