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

	"github.com/refract-project/refract/host"
	"github.com/refract-project/refract/host/document"
	"github.com/refract-project/refract/vk/reflection"
	"github.com/refract-project/refract/vk/reflection/internal/failure"
	"github.com/refract-project/refract/vk/reflection/internal/pods"
	"github.com/refract-project/refract/vk/reflection/internal/raw"
	"github.com/refract-project/refract/vk/reflection/reflectiontest"
)

// fight repeats round until an Event reports that the object is quarantined. The test fails after more rounds than a
// quarantine needs.
func fight(l *lab, kind, name string, round func(i int)) {
	l.Helper()
	for i := range 40 {
		if slices.ContainsFunc(l.Events(l.Namespace, kind, name), func(event string) bool { return strings.Contains(event, failure.QuarantinedReason) }) {
			return
		}
		round(i)
		time.Sleep(200 * time.Millisecond) // a fixed delay, because this client does not react to the manager
	}
	l.Fatalf("%s %s is not quarantined, its Events are %q", kind, name, l.Events(l.Namespace, kind, name))
}

// TestDeletedShadowPodsAreQuarantined checks that a pod that is shown as running is quarantined if a client on the
// provider deletes each of its ShadowPods. The annotations that the virtual kubelet writes to the pod each time must
// not reset the quarantine. During the quarantine, no ShadowPod may be created, an Event must name the labels that
// may have caused the deletions, and the pod must be shown as not ready.
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
	l.Event(l.Namespace, "Pod", "web", "Warning", failure.QuarantinedReason, "to cluster "+l.ID, "another client deletes it", "app.kubernetes.io/instance=shop", "Argo CD")
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

// TestAddressesComeBackDuringAQuarantine checks that the addresses of a Service that is quarantined because a client
// on the provider reverts its spec are still updated in this cluster, and that the quarantine ends when the local
// Service changes.
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
		// The status also changes: writing it to the local object must not reset the quarantine either.
		if i%2 == 0 {
			l.Remote.PatchYAML(t, "Service", l.RemoteNS, "web", fmt.Sprintf(`{status: {loadBalancer: {ingress: [{ip: 192.0.2.%d}]}}}`, 100+i), "status")
		}
	})
	l.Event(l.Namespace, "Service", "web", "Warning", failure.QuarantinedReason, `"gitops" (Update)`, "spec.selector.app")
	l.Remote.PatchYAML(t, "Service", l.RemoteNS, "web", served, "status")
	l.Present(l.Local, "Service", l.Namespace, "web", reflectiontest.Addresses("192.0.2.7", "lb.example.com"))
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("spec.selector.app", "other"))
	l.Local.PatchYAML(t, "Service", l.Namespace, "web", `{spec: {sessionAffinity: ClientIP}}`)
	l.Present(l.Remote, "Service", l.RemoteNS, "web", reflectiontest.Field("spec.selector.app", "web"), reflectiontest.Field("spec.sessionAffinity", "ClientIP"))
}

// TestSwapsOfPluginsAreNoFight checks that a ConfigMap whose plugin alternates between two revisions is written after
// every swap: a user who tries a plugin and goes back several times does not count as a fight.
func TestSwapsOfPluginsAreNoFight(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *reflection.Options) { o.Kinds = reflectiontest.Kinds(reflection.ConfigMapKind) })
	l.Local.Create(t, l.Namespace, `{apiVersion: v1, kind: ConfigMap, metadata: {name: web}, data: {revision: none}}`)
	l.Start()
	for i := range 8 {
		revision := fmt.Sprintf("v%d", i%2)
		l.Chains.Swap(reflection.ConfigMapKind, host.Outgoing, func(doc document.Node, _ *host.Env) (*host.Outcome, error) {
			return &host.Outcome{}, doc.SetString("data.revision", revision)
		})
		l.Present(l.Remote, "ConfigMap", l.RemoteNS, "web", reflectiontest.Field("data.revision", revision))
	}
}

// TestDirectionsFailApart checks that the status of an Ingress is shown although an annotation is invalid or the
// outgoing plugin fails. If the incoming chain fails for a status, the Event must name the status.
func TestDirectionsFailApart(t *testing.T) {
	t.Parallel()
	l := newLab(t, func(o *reflection.Options) { o.Kinds = reflectiontest.Kinds(reflection.IngressKind) })
	l.Local.Create(t, l.Namespace, ingress)
	l.Start()
	l.Present(l.Remote, "Ingress", l.RemoteNS, "web")
	l.Local.PatchYAML(t, "Ingress", l.Namespace, "web", `{metadata: {annotations: {liqo.io/skip-reflection: "maybe"}}}`)
	l.Event(l.Namespace, "Ingress", "web", "Warning", failure.InvalidObjectReason, "to cluster "+l.ID)
	l.Remote.PatchYAML(t, "Ingress", l.RemoteNS, "web", served, "status")
	l.Present(l.Local, "Ingress", l.Namespace, "web", reflectiontest.Addresses("192.0.2.7", "lb.example.com"))
}

// TestTheStateOfAClaimComesBackDuringARefusal checks that the state of a claim's volume is updated in this cluster
// while a policy of the provider denies updates to the claim.
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
	l.disks("data", "3Gi")
	l.Present(l.Local, reflection.ClaimKind, l.Namespace, "data", reflectiontest.Field("status.capacity.storage", "3Gi"))
	l.Present(l.Remote, reflection.ClaimKind, l.RemoteNS, "data", reflectiontest.Field("metadata.labels/tier", ""))
}
