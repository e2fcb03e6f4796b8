// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	pluginsv1alpha1 "github.com/refract-project/refract/api/plugins/v1alpha1"
	"github.com/refract-project/refract/internal/admission"
)

// recordEvents makes the Follower write Events with the virtual kubelet's own permissions.
func (l *lab) recordEvents() {
	l.Helper()
	broadcaster := record.NewBroadcaster()
	l.Cleanup(broadcaster.Shutdown)
	client := must(kubernetes.NewForConfig(l.options.Local))(l.T)
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(metav1.NamespaceAll)})
	l.options.Events = broadcaster.NewRecorder(runtime.NewScheme(), corev1.EventSource{Component: "virtual-kubelet"})
}

// deny creates an admission policy that denies writes of the virtual kubelet to the status of a ReflectedResource if
// the CEL expression is false. It returns as soon as the policy denies the JSON patch. The function lift removes the
// policy.
func (l *lab) deny(name, resource, expression, reason, patch string) (lift func()) {
	l.Helper()
	admissions := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource}
	}
	policies, bindings := admissions("validatingadmissionpolicies"), admissions("validatingadmissionpolicybindings")
	l.create(l.local, policies, "", fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %s}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [plugins.refract.io], apiVersions: ["*"], operations: [UPDATE], resources: [reflectedresources/status]}]}
  matchConditions: [{name: ours, expression: "request.userInfo.username == 'kubelet-%s' && object.metadata.name == '%s'"}]
  validations: [{expression: "%s", reason: %s}]`, name, l.node, resource, expression, reason))
	l.create(l.local, bindings, "", fmt.Sprintf("{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: %[1]s}, spec: {policyName: %[1]s, validationActions: [Deny]}}", name))
	lift = func() {
		for _, kind := range []schema.GroupVersionResource{bindings, policies} {
			_ = l.local.dynamic.Resource(kind).Delete(context.Background(), name, metav1.DeleteOptions{})
		}
	}
	l.Cleanup(lift)
	kubelet := must(dynamic.NewForConfig(l.options.Local))(l.T)
	l.eventually(func() error {
		_, err := kubelet.Resource(reflectedResources).Patch(l.Context(), resource, types.JSONPatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		if admission.DenyingPolicy(err) != name {
			return fmt.Errorf("policy %s is not in force: %w", name, err)
		}
		return nil
	})
	return lift
}

// denials waits for an Event about a denial by the policy, and returns all Events about denials of the
// ReflectedResource.
func (l *lab) denials(resource, policy string) (found []corev1.Event) {
	l.Helper()
	l.eventually(func() error {
		list, err := l.local.core.CoreV1().Events(metav1.NamespaceDefault).List(l.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + resource})
		if err != nil {
			return err
		}
		found = slices.DeleteFunc(list.Items, func(e corev1.Event) bool {
			return e.Reason != admission.DeniedReason || e.InvolvedObject.Kind != pluginsv1alpha1.ReflectedResourceKind || e.Type != corev1.EventTypeWarning
		})
		if !slices.ContainsFunc(found, func(e corev1.Event) bool {
			return strings.HasPrefix(e.Message, "virtual node "+l.node+": ValidatingAdmissionPolicy "+policy+" denied a request")
		}) {
			return fmt.Errorf("no Event about policy %s, but %v", policy, found)
		}
		return nil
	})
	return found
}

// TestDeniedStatusesAreReported checks that one Event reports if an admission policy denies a write to the status of a
// ReflectedResource, no matter which reason the policy returns. The status must be written as soon as the policy allows
// it.
func TestDeniedStatusesAreReported(t *testing.T) {
	l := newLab(t)
	l.recordEvents()
	l.options.RecheckEvery = 50 * time.Millisecond
	const name = "widgets.denied.example.org"
	l.reflect(name, "{group: denied.example.org, version: v1, resource: widgets, workers: 0}")
	gone := l.node + "-gone"
	l.patch(l.local, reflectedResources, "", name, "status: {virtualNodes: [{name: "+gone+", clusterID: milan}]}", "status")
	liftRemovals := l.deny("denies-removals", name, "object.status.virtualNodes.exists(n, n.name == '"+gone+"')", "Invalid", `[{"op":"remove","path":"/status/virtualNodes/0"}]`)
	liftEntries := l.deny("denies-entries", name, "!object.status.virtualNodes.exists(n, n.name != '"+gone+"')", "Forbidden",
		`[{"op":"add","path":"/status/virtualNodes/-","value":{"name":"other","clusterID":"milan"}}]`)
	l.start()

	l.denials(name, "denies-entries")
	liftEntries()
	l.condition(name, pluginsv1alpha1.PausedReason)
	found := l.denials(name, "denies-removals")
	require.Len(t, found, 2)
	for _, event := range found {
		require.LessOrEqual(t, event.Count, int32(1), event.Message)
	}
	liftRemovals()
	l.eventually(func() error {
		object, _ := l.get(name)
		if left, _ := statusEntries(object); !slices.Equal(left, []string{l.node}) {
			return fmt.Errorf("there are entries of %q", left)
		}
		return nil
	})
}
