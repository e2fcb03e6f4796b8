// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package reflection_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/refract-project/refract/vk/pods"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/engine"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// fight repeats a round until an Event reports that the object is quarantined. It fails after more rounds than a
// quarantine needs.
func fight(l *lab, kind, name string, round func(i int)) {
	l.Helper()
	for i := range 40 {
		if slices.ContainsFunc(l.Events(l.Namespace, kind, name), func(event string) bool { return strings.Contains(event, engine.QuarantinedReason) }) {
			return
		}
		round(i)
		time.Sleep(200 * time.Millisecond) // simulates a client that does not wait for us
	}
	l.Fatalf("%s %s is not quarantined, its Events are %q", kind, name, l.Events(l.Namespace, kind, name))
}

// TestDeletedShadowPodsAreQuarantined checks a client on the provider that deletes each ShadowPod of a pod that is
// shown as running. The marks that the virtual kubelet writes to the pod each time do not reset the quarantine: the pod
// is left alone, an Event names the labels that may have caused the deletions, and the pod is shown as not ready.
func TestDeletedShadowPodsAreQuarantined(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Start()
	l.Pod("web")
	l.Local.PatchYAML(t, "Pod", l.Namespace, "web", `{metadata: {labels: {app.kubernetes.io/instance: shop}}}`)
	l.Present(l.Remote, "ShadowPod", l.RemoteNS, "web", reflectiontest.Field("metadata.labels/app.kubernetes.io/instance", "shop"))
	deleted := 0
	fight(l, "Pod", "web", func(i int) {
		if l.Remote.Get(t, "Pod", l.RemoteNS, "web") == nil && l.Remote.Get(t, "ShadowPod", l.RemoteNS, "web") != nil {
			l.RunRemote("web", running(i))
			l.Present(l.Local, "Pod", l.Namespace, "web", reflectiontest.Field("status.phase", "Running"))
			l.Remote.DeleteNow(t, "Pod", l.RemoteNS, "web")
		}
		if err := l.Remote.Of("ShadowPod", l.RemoteNS).Delete(t.Context(), "web", metav1.DeleteOptions{}); err == nil {
			deleted++
		} else if !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	})
	l.Event(l.Namespace, "Pod", "web", "Warning", engine.QuarantinedReason, "to cluster "+l.ID, "another client deletes it", "app.kubernetes.io/instance=shop", "Argo CD")
	if deleted > 12 {
		t.Errorf("%d ShadowPods were deleted before the quarantine", deleted)
	}
	l.Present(l.Local, "Pod", l.Namespace, "web", func(pod *unstructured.Unstructured) error {
		if ready := pods.Condition(raw.Status(pod), corev1.PodReady); ready["status"] != "False" {
			return fmt.Errorf("the pod is shown with %v, want it not ready", ready)
		}
		return nil
	})
}

// TestAddressesComeBackDuringAQuarantine checks that the quarantine of a Service whose spec a client on the provider
// reverts does not affect its addresses, and ends when the Service changes here.
func TestAddressesComeBackDuringAQuarantine(t *testing.T) {
	t.Parallel()
	l := newLab(t, statuses(t))
	l.Local.Create(t, l.Namespace, balanced)
	l.Start()
	l.Present(l.Remote, "Service", l.RemoteNS, "web")
	fight(l, "Service", "web", func(i int) {
		_, err := l.Remote.Of("Service", l.RemoteNS).Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"selector":{"app":"other"}}}`), metav1.PatchOptions{FieldManager: "gitops"})
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 { // a status that is reflected back must not reset the quarantine either
			l.Remote.PatchYAML(t, "Service", l.RemoteNS, "web", fmt.Sprintf(`{status: {loadBalancer: {ingress: [{ip: 192.0.2.%d}]}}}`, 100+i), "status")
		}
	})
	l.Event(l.Namespace, "Service", "web", "Warning", engine.QuarantinedReason, `"gitops" (Update)`, "spec.selector.app")
	l.Remote.PatchYAML(t, "Service", l.RemoteNS, "web", served, "status")
	l.Present(l.Local, "Service", l.Namespace, "web", reflectiontest.Addresses("192.0.2.7", "lb.example.com"))
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("spec.selector.app", "other"))
	l.Local.PatchYAML(t, "Service", l.Namespace, "web", `{spec: {sessionAffinity: ClientIP}}`)
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("spec.selector.app", "web"), reflectiontest.Field("spec.sessionAffinity", "ClientIP"))
}

// TestDirectionsFailApart checks that the status of an Ingress is shown despite an invalid annotation or a failing
// outgoing plugin, and that the Event about a status whose chain fails names the status.
func TestDirectionsFailApart(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *reflection.Options) { o.Kinds = reflectiontest.Kinds(reflection.IngressKind) })
	l.Local.Create(t, l.Namespace, ingress)
	l.Start()
	l.Present(l.Remote, "Ingress", l.RemoteNS, "web")
	l.Local.PatchYAML(t, "Ingress", l.Namespace, "web", `{metadata: {annotations: {liqo.io/skip-reflection: "maybe"}}}`)
	l.Event(l.Namespace, "Ingress", "web", "Warning", engine.InvalidObjectReason, "to cluster "+l.ID)
	l.Remote.PatchYAML(t, "Ingress", l.RemoteNS, "web", served, "status")
	l.Present(l.Local, "Ingress", l.Namespace, "web", reflectiontest.Addresses("192.0.2.7", "lb.example.com"))
}

// TestTheStateOfAClaimComesBackDuringARefusal checks that the state of a claim's volume is shown while a policy of the
// provider denies an update of the claim.
func TestTheStateOfAClaimComesBackDuringARefusal(t *testing.T) {
	t.Parallel()
	l := newClaimLab(t, "Delete")
	l.Start()
	l.claim("data", l.Node)
	l.bound("data")
	name := "denying-" + l.RemoteNS
	l.Remote.Create(t, "", fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %s}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [UPDATE], resources: [persistentvolumeclaims]}]
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %s}}
  validations: [{expression: "!('tier' in object.metadata.labels)", message: no tiers}]`, name, l.RemoteNS))
	l.Remote.Create(t, "", fmt.Sprintf(`{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: %s}, spec: {policyName: %s, validationActions: [Deny]}}`, name, name))
	l.Eventually(func() error {
		_, err := l.Remote.Of(reflection.ClaimKind, l.RemoteNS).Patch(t.Context(), "data", types.MergePatchType, []byte(`{"metadata":{"labels":{"tier":"gold"}}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return fmt.Errorf("the policy is not in force")
		}
		return nil
	})
	l.Local.PatchYAML(t, reflection.ClaimKind, l.Namespace, "data", `{metadata: {labels: {tier: gold}}}`)
	l.Event(l.Namespace, reflection.ClaimKind, "data", "Warning", "no tiers")
	l.Remote.PatchYAML(t, reflection.ClaimKind, l.RemoteNS, "data", `{status: {phase: Bound, accessModes: [ReadWriteOnce], capacity: {storage: 3Gi}}}`, "status")
	l.Present(l.Local, reflection.ClaimKind, l.Namespace, "data", reflectiontest.Field("status.capacity.storage", "3Gi"))
	l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "data", reflectiontest.Field("metadata.labels/tier", ""))
}
