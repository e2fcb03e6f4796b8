// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/admission"
	"github.com/refract-project/refract/internal/folderplugins"
	"github.com/refract-project/refract/test/support/story"
	"github.com/refract-project/refract/vk/node"
)

// TestController runs all tests that need clusters. They share two clusters, because starting clusters takes most of
// the time.
func TestController(t *testing.T) {
	s := newSuite(t)
	story.Run(t, "testdata/stories", func(t *testing.T) *story.Stage { return s.in(t).stage() })
	for _, test := range []struct {
		name string
		run  func(*testing.T, *suite)
	}{
		{"what is malformed is left out and told", testMalformed},
		{"a node that is not virtual is not taken over", testForeignNode},
		{"the node of another provider is not taken over", testNodeOfAnotherProvider},
		{"a node that lost its labels while nobody looked is found again", testLostLabels},
		{"a policy that denies the condition is reported", testDeniedCondition},
		{"a policy that denies the lease is reported", testDeniedLease},
		{"the node of a deleted VirtualNode stays away", testDeletedVirtualNode},
		{"the version of the provider is a label of the node", testProviderVersion},
		{"plugins in the folder are an annotation of the node", testFolderPlugins},
		{"another client that keeps reverting the node is answered more and more slowly", testRivals},
		{"another client that keeps deleting the node is answered more and more slowly", testDeletingRival},
		{"the lease belongs to a node that is created again", testRecreatedNode},
		{"the lease of a node that is gone is taken over", testLeaseOfANodeThatIsGone},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s.in(t)) })
	}
	t.Run("the lease is held while the work ends", func(t *testing.T) { testSlowEnd(t, s.provider) })
	t.Run("a lease is taken at once from a replica that is gone", func(t *testing.T) { testSupersede(t, s.provider) })
	// This test comes last, because it stops the provider.
	t.Run("election", func(t *testing.T) { testElection(t, s.provider) })
}

func testMalformed(t *testing.T, s *suite) {
	s.createVirtualNode()
	controller, _ := s.kubelet()
	<-controller.Ready()
	s.changeVirtualNode(func(vn *offloadingv1beta1.VirtualNode) {
		vn.Spec.Labels = map[string]string{"tier": "silver", "a b": "c"}
		vn.Spec.Annotations = map[string]string{"a b": "c"}
		vn.Spec.Taints = []corev1.Taint{{Key: "good", Effect: corev1.TaintEffectNoSchedule}, {Key: "bad", Effect: "Nope"}}
		vn.Spec.ResourceQuota.Hard = list("cpu", "5", "memory", "-1", "nvidia.com/gpu", "1500m")
	})
	marker := s.auditEnd()
	s.expectNode("what is well-formed", func(n *corev1.Node) string {
		switch {
		case n.Labels["tier"] != "silver":
			return "the good label is missing"
		case !hasTaint(n, "good"):
			return "the good taint is missing"
		case !n.Status.Capacity.Cpu().Equal(resource.MustParse("5")):
			return "the good quantity is missing"
		}
		return ready(corev1.ConditionFalse, "no CPU or no memory")(n)
	})
	s.expectWarning(node.InvalidReason, "spec.labels", `"a b"="c"`, "spec.annotations", "spec.taints", `"bad:Nope"`, "spec.resourceQuota.hard", `"memory": "-1"`, `"nvidia.com/gpu": "1500m"`)
	// A few writes are expected: of taints and status, and one more whenever another client changes the node. An
	// endless loop would write hundreds of times.
	if writes := s.writesSince(marker); len(writes) > 15 {
		t.Errorf("written: %v", writes)
	}

	var n corev1.Node
	require.NoError(t, s.admin.Get(t.Context(), types.NamespacedName{Name: name}, &n))
	spoil := `{"metadata":{"annotations":{"virtual-kubelet.io/last-applied-object-meta":"{","virtual-kubelet.io/last-applied-node-status":"["}}}`
	require.NoError(t, s.admin.Patch(t.Context(), &n, client.RawPatch(types.MergePatchType, []byte(spoil))))
	s.changeVirtualNode(func(vn *offloadingv1beta1.VirtualNode) {
		vn.Spec.ResourceQuota.Hard = list("cpu", "7", "memory", "1Gi")
	})
	s.expectNode("written in spite of spoiled annotations", func(n *corev1.Node) string {
		if !n.Status.Capacity.Cpu().Equal(resource.MustParse("7")) {
			return "the capacity is not followed"
		}
		return ready(corev1.ConditionTrue, "")(n)
	})

	// Settings that pass our checks but are rejected by the API server must be reported, and retried only after long
	// delays.
	marker = s.auditEnd()
	s.changeVirtualNode(func(vn *offloadingv1beta1.VirtualNode) {
		vn.Spec.Annotations = map[string]string{"long": strings.Repeat("x", 1<<18)}
	})
	s.expectWarning(node.UpdateFailedReason, "annotations", "262144")
	s.expect("tried again", func(context.Context) string {
		if s.requestsSince(marker, "patch", "nodes") < 2 {
			return "not yet"
		}
		return ""
	})
	if patches := s.requestsSince(marker, "patch", "nodes"); patches > 15 {
		t.Errorf("tried %d times within seconds", patches)
	}
}

func testLostLabels(t *testing.T, s *suite) {
	s.createVirtualNode()
	controller, end := s.kubelet()
	<-controller.Ready()
	end()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(t, s.admin.Patch(t.Context(), n, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/metadata/labels","value":{"kept":"yes"}}]`))))
	s.kubelet()
	s.expectNode("labelled again", func(n *corev1.Node) string {
		if n.Labels[wire.TypeLabel] != wire.VirtualNodeType || n.Labels[wire.RemoteClusterIDLabel] != "milan" || n.Labels["kept"] != "yes" {
			return fmt.Sprint(n.Labels)
		}
		return ""
	})
}

func testDeletedVirtualNode(t *testing.T, s *suite) {
	s.createVirtualNode()
	s.changeVirtualNode(func(vn *offloadingv1beta1.VirtualNode) { vn.Finalizers = []string{wire.VirtualNodeFinalizer} })
	defer s.changeVirtualNode(func(vn *offloadingv1beta1.VirtualNode) { vn.Finalizers = nil })
	controller, _ := s.kubelet()
	<-controller.Ready()
	var vn offloadingv1beta1.VirtualNode
	require.NoError(t, s.admin.Get(t.Context(), types.NamespacedName{Namespace: tenant, Name: name}, &vn))
	require.NoError(t, s.admin.Delete(t.Context(), &vn))
	marker := s.auditEnd()
	require.NoError(t, s.admin.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	s.expect("looked for twice", func(context.Context) string {
		if s.requestsSince(marker, "get", "nodes") < 2 {
			return "not yet"
		}
		return ""
	})
	if created := s.requestsSince(marker, "create", "nodes"); created > 0 {
		t.Error("the node was created again although its VirtualNode is being deleted")
	}
}

// testProviderVersion checks that the Node has a label with the version that the provider reports. If the provider
// reports no version after a restart of the controller, the label must be kept.
func testProviderVersion(_ *testing.T, s *suite) {
	s.createVirtualNode()
	said := "v1.35.2+k3s1"
	s.version.Store(&said)
	_, end := s.kubelet()
	labelled := func(n *corev1.Node) string {
		if n.Labels[wire.ProviderVersionLabel] != "v1.35.2_k3s1" {
			return fmt.Sprint(n.Labels)
		}
		return ""
	}
	s.expectNode("labelled with the version", labelled)
	end()
	s.version.Store(nil)
	controller, _ := s.kubelet()
	<-controller.Ready()
	s.changeVirtualNode(func(vn *offloadingv1beta1.VirtualNode) { vn.Spec.Labels = map[string]string{"tier": "gold"} })
	s.expectNode("labelled as before", func(n *corev1.Node) string {
		if n.Labels["tier"] != "gold" {
			return fmt.Sprint(n.Labels)
		}
		return labelled(n)
	})
}

// testFolderPlugins checks that an annotation of the Node lists the plugins in the folder, and that a condition reports
// plugins that are not loaded. Both must be updated when a plugin is added, breaks or is removed, even if the
// VirtualNode has an annotation with the same key.
func testFolderPlugins(_ *testing.T, s *suite) {
	s.createVirtualNode()
	controller, _ := s.kubelet()
	<-controller.Ready()
	s.changeVirtualNode(func(vn *offloadingv1beta1.VirtualNode) {
		vn.Spec.Annotations = map[string]string{folderplugins.Annotation: "forged", "other": "stays"}
	})
	for _, test := range []struct {
		found                 []folderplugins.Plugin
		annotation, condition string
	}{
		{[]folderplugins.Plugin{{Name: "strip", State: folderplugins.LoadedState, IsRunning: true}},
			`{"plugins":[{"name":"strip","state":"Loaded","running":true}]}`, "True PluginsLoaded"},
		{[]folderplugins.Plugin{{Name: "strip", State: folderplugins.FailedState, Held: []string{"Pod"}}},
			`{"plugins":[{"name":"strip","state":"Failed","running":false,"held":["Pod"]}]}`, "False ObjectsHeld"},
		{nil, "", ""},
	} {
		s.folder.Store(&test.found)
		controller.Refresh()
		s.expectNode("described with "+test.annotation, func(n *corev1.Node) string {
			condition := ""
			for _, c := range n.Status.Conditions {
				if c.Type == folderplugins.ConditionType {
					condition = string(c.Status) + " " + c.Reason
				}
			}
			if n.Annotations[folderplugins.Annotation] != test.annotation || condition != test.condition || n.Annotations["other"] != "stays" {
				return fmt.Sprint(n.Annotations, n.Status.Conditions)
			}
			return ""
		})
	}
}

func testForeignNode(_ *testing.T, s *suite) {
	s.expectUntouched(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, "not a virtual node")
	require.NoError(s, s.admin.Delete(s.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	s.expectCondition(offloadingv1beta1.RunningConditionStatus, node.RegisteredReason, "")
}

func testNodeOfAnotherProvider(_ *testing.T, s *suite) {
	s.expectUntouched(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		wire.TypeLabel: wire.VirtualNodeType, wire.RemoteClusterIDLabel: "rome",
	}}}, `virtual node of provider "rome"`)
}

// testDeniedCondition checks that a policy that denies the write of the condition is reported, in contrast to a missing
// permission. The condition must be written as soon as the policy is gone.
func testDeniedCondition(t *testing.T, s *suite) {
	s.createVirtualNode()
	lift := s.deny("denies-conditions", offloadingv1beta1.GroupVersion.Group, "virtualnodes/status", func(ctx context.Context) error {
		vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}}
		return s.admin.Status().Patch(ctx, vn, client.RawPatch(types.MergePatchType, []byte(`{"status":{"conditions":[]}}`)), client.DryRunAll)
	})
	s.kubelet()
	s.expectWarning(admission.DeniedReason, "ValidatingAdmissionPolicy denies-conditions denied a request")
	lift()
	s.expectCondition(offloadingv1beta1.RunningConditionStatus, node.RegisteredReason, "")
}

// testDeniedLease checks that a policy that denies the Lease of the Node is reported, because the control plane regards
// a Node without a Lease as dead.
func testDeniedLease(t *testing.T, s *suite) {
	s.createVirtualNode()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}}
	require.NoError(t, client.IgnoreNotFound(s.admin.Delete(t.Context(), lease.DeepCopy())))
	lift := s.deny("denies-leases", coordinationv1.GroupName, "leases", func(ctx context.Context) error { return s.admin.Create(ctx, lease.DeepCopy(), client.DryRunAll) })
	s.kubelet()
	s.expectWarning(node.UpdateFailedReason, "ValidatingAdmissionPolicy denies-leases denied a request", "writing the lease of node "+name)
	lift()
	s.expect("the lease to be created", func(ctx context.Context) string {
		if err := s.admin.Get(ctx, client.ObjectKeyFromObject(lease), lease.DeepCopy()); err != nil {
			return err.Error()
		}
		return ""
	})
}

// deny creates an admission policy that denies the creation and each change of a resource, until the returned function
// is called. It returns as soon as the policy denies the attempt.
func (s *suite) deny(policyName, group, resource string, attempt func(context.Context) error) (lift func()) {
	s.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: policyName}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
				Rule: admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}}}}}},
		Validations: []admissionv1.Validation{{Expression: "false", Reason: ptr.To(metav1.StatusReasonForbidden)}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: policyName},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policyName, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}
	for _, object := range []client.Object{policy, binding} {
		require.NoError(s, s.admin.Create(s.Context(), object))
		s.Cleanup(func() { _ = s.admin.Delete(context.Background(), object) })
	}
	s.expect("the policy to be in force", func(ctx context.Context) string {
		if err := attempt(ctx); admission.DenyingPolicy(err) != policyName {
			return "the attempt ends with " + fmt.Sprint(err)
		}
		return ""
	})
	return func() { require.NoError(s, s.admin.Delete(s.Context(), binding)) }
}

// expectUntouched checks that the controller reports an existing Node that belongs to another owner, and leaves it
// unchanged.
func (s *suite) expectUntouched(existing *corev1.Node, why string) {
	s.Helper()
	require.NoError(s, s.admin.Create(s.Context(), existing))
	s.createVirtualNode()
	marker := s.auditEnd()
	controller, _ := s.kubelet()
	s.expectWarning(node.NotRegisteredReason, why)
	select {
	case <-controller.Ready():
		s.Error("the node was taken over")
	default:
	}
	s.expectCondition(offloadingv1beta1.NoneConditionStatus, node.NameTakenReason, why)
	writes := s.writesSince(marker)
	writes = slices.DeleteFunc(writes, func(write string) bool { return strings.Contains(write, "virtualnodes status") })
	if len(writes) > 0 {
		s.Errorf("a node that is not ours was written: %v", writes)
	}
}

// expectCondition waits until the VirtualNode has the given condition about its Node.
func (s *suite) expectCondition(status offloadingv1beta1.VirtualNodeConditionStatus, reason, words string) {
	s.Helper()
	s.expect("condition", func(ctx context.Context) string {
		var vn offloadingv1beta1.VirtualNode
		if err := s.admin.Get(ctx, types.NamespacedName{Namespace: tenant, Name: name}, &vn); err != nil {
			return err.Error()
		}
		for _, c := range vn.Status.Conditions {
			if c.Type == offloadingv1beta1.NodeConditionType && c.Status == status && c.Reason == reason && strings.Contains(c.Message, words) {
				return ""
			}
		}
		return fmt.Sprintf("%+v", vn.Status.Conditions)
	})
}
