// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1beta1 "github.com/refract-project/refract/api/core/v1beta1"
	offloadingv1beta1 "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/vk/node"
)

// TestController shares two clusters: most of its time is theirs.
func TestController(t *testing.T) {
	s := newSuite(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *suite)
	}{
		{"lifecycle", testLifecycle},
		{"what is malformed is left out and told", testMalformed},
		{"a node that is not virtual is not taken over", testForeignNode},
		{"the node of another provider is not taken over", testNodeOfAnotherProvider},
		{"a node that lost its labels while nobody looked is found again", testLostLabels},
		{"the node of a deleted VirtualNode stays away", testDeletedVirtualNode},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, s.in(t)) })
	}
	t.Run("the lease is held while the work ends", func(t *testing.T) { testSlowEnd(t, s.provider) })
	t.Run("election", func(t *testing.T) { testElection(t, s.provider) }) // stops the provider
}

func testLifecycle(t *testing.T, s *suite) {
	must(t, s.provider.StopAPIServer())
	controller, end := s.kubelet()
	s.createVirtualNode()

	t.Run("a dead provider at the start gives a node that is not ready", func(t *testing.T) {
		s.expectNode("registered", ready(corev1.ConditionFalse, "does not answer"))
		s.expectNode("complete", func(n *corev1.Node) string {
			switch {
			case n.Labels[wire.TypeLabel] != wire.VirtualNodeType || n.Labels["tier"] != "gold":
				return "labels are missing"
			case !n.Status.Allocatable.Cpu().Equal(resource.MustParse("4")):
				return "the capacity is wrong"
			case !hasTaint(n, wire.VirtualNodeTaint) || !hasTaint(n, "dedicated"):
				return "taints are missing"
			}
			return ""
		})
		<-controller.Ready()
	})
	t.Run("it becomes ready when the provider answers", func(t *testing.T) {
		must(t, s.provider.StartAPIServer(t.Context()))
		t.Logf("ready after %s", s.expectNode("ready", ready(corev1.ConditionTrue, "")))
	})
	t.Run("a provider that dies is told at once", func(t *testing.T) {
		must(t, s.provider.StopAPIServer())
		took := s.expectNode("not ready", ready(corev1.ConditionFalse, "does not answer"))
		t.Logf("not ready after %s", took)
		if took > 10*time.Second {
			t.Errorf("telling took %s", took)
		}
		must(t, s.provider.StartAPIServer(t.Context()))
		s.expectNode("ready again", ready(corev1.ConditionTrue, ""))
	})
	t.Run("the VirtualNode is followed, removed keys disappear", func(t *testing.T) {
		s.changeVirtualNode(func(vn *offloadingv1beta1.VirtualNode) {
			vn.Spec.Labels = map[string]string{"rack": "7"}
			vn.Spec.Taints = nil
			vn.Spec.ResourceQuota.Hard = list("cpu", "6", "memory", "8Gi")
		})
		s.expectNode("changed", func(n *corev1.Node) string {
			_, tier := n.Labels["tier"]
			_, gpu := n.Status.Capacity["nvidia.com/gpu"]
			switch {
			case tier || n.Labels["rack"] != "7":
				return "labels are not followed"
			case gpu || !n.Status.Capacity.Cpu().Equal(resource.MustParse("6")):
				return "the capacity is not followed"
			case hasTaint(n, "dedicated"):
				return "the removed taint is still there"
			}
			return ""
		})
	})
	t.Run("drift is repaired, what others add stays", func(t *testing.T) {
		var n corev1.Node
		must(t, s.admin.Get(t.Context(), types.NamespacedName{Name: name}, &n))
		patch := `{"metadata":{"labels":{"liqo.io/type":"forged","theirs":"x"}},"spec":{"taints":[{"key":"theirs","effect":"NoSchedule"}]}}`
		must(t, s.admin.Patch(t.Context(), &n, client.RawPatch(types.MergePatchType, []byte(patch))))
		s.expectNode("repaired", func(n *corev1.Node) string {
			switch {
			case n.Labels[wire.TypeLabel] != wire.VirtualNodeType:
				return "our label is not back"
			case !hasTaint(n, wire.VirtualNodeTaint):
				return "our taint is not back"
			case n.Labels["theirs"] != "x" || !hasTaint(n, "theirs"):
				return "what others added is gone"
			}
			return ""
		})
	})
	t.Run("a deleted node comes back", func(t *testing.T) {
		var n corev1.Node
		must(t, s.admin.Get(t.Context(), types.NamespacedName{Name: name}, &n))
		must(t, s.admin.Delete(t.Context(), &n))
		s.expectNode("back", func(back *corev1.Node) string {
			if back.UID == n.UID {
				return "it is still the old one"
			}
			return ready(corev1.ConditionTrue, "")(back)
		})
	})
	t.Run("the network of the ForeignCluster counts", func(t *testing.T) {
		fc := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{wire.RemoteClusterIDLabel: "milan"}},
			Spec: corev1beta1.ForeignClusterSpec{ClusterID: "milan"}}
		must(t, s.admin.Create(t.Context(), fc))
		s.expectNode("not ready", ready(corev1.ConditionFalse, "network"))
		fc.Status.ObservedGeneration, fc.Status.Role = 1, corev1beta1.ConsumerAndProviderRole
		fc.Status.Modules.Networking = corev1beta1.Module{Enabled: true, Conditions: []corev1beta1.Condition{{
			Type: corev1beta1.NetworkConnectionStatusCondition, Status: corev1beta1.ConditionStatusEstablished, LastTransitionTime: metav1.Now()}}}
		must(t, s.admin.Status().Update(t.Context(), fc))
		s.expectNode("ready", ready(corev1.ConditionTrue, ""))
		must(t, s.admin.Delete(t.Context(), fc))
		s.expectNode("without network condition", func(n *corev1.Node) string {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeNetworkUnavailable {
					return "the condition is still there"
				}
			}
			return ready(corev1.ConditionTrue, "")(n)
		})
	})
	t.Run("nothing but the lease is written when nothing changes", func(t *testing.T) { s.expectOnlyLeases(4) })
	t.Run("a restart writes one heartbeat and keeps the transition times, however far the provider is", func(t *testing.T) {
		var before corev1.Node
		must(t, s.admin.Get(t.Context(), types.NamespacedName{Name: name}, &before))
		end()
		marker := s.auditEnd()
		again, _ := s.kubeletFarAway(700 * time.Millisecond)
		<-again.Ready()
		s.expectNode("heartbeat", func(n *corev1.Node) string {
			if n.ResourceVersion == before.ResourceVersion {
				return "no heartbeat"
			}
			return ready(corev1.ConditionTrue, "")(n)
		})
		var after corev1.Node
		must(t, s.admin.Get(t.Context(), types.NamespacedName{Name: name}, &after))
		for i, c := range before.Status.Conditions {
			if !after.Status.Conditions[i].LastTransitionTime.Equal(&c.LastTransitionTime) {
				t.Errorf("%s changed its transition time by a restart: from %s %s to %s %s", c.Type, c.Status, c.LastTransitionTime,
					after.Status.Conditions[i].Status, after.Status.Conditions[i].LastTransitionTime)
			}
		}
		if got, want := strings.Join(s.writesSince(marker), ", "), "patch nodes status milan"; got != want {
			t.Errorf("the restart wrote %q, want %q", got, want)
		}
	})
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
	// A few: taints, status, and again when somebody else changes the node. Spinning makes hundreds.
	if writes := s.writesSince(marker); len(writes) > 15 {
		t.Errorf("written: %v", writes)
	}

	var n corev1.Node
	must(t, s.admin.Get(t.Context(), types.NamespacedName{Name: name}, &n))
	spoil := `{"metadata":{"annotations":{"virtual-kubelet.io/last-applied-object-meta":"{","virtual-kubelet.io/last-applied-node-status":"["}}}`
	must(t, s.admin.Patch(t.Context(), &n, client.RawPatch(types.MergePatchType, []byte(spoil))))
	s.changeVirtualNode(func(vn *offloadingv1beta1.VirtualNode) {
		vn.Spec.ResourceQuota.Hard = list("cpu", "7", "memory", "1Gi")
	})
	s.expectNode("written in spite of spoiled annotations", func(n *corev1.Node) string {
		if !n.Status.Capacity.Cpu().Equal(resource.MustParse("7")) {
			return "the capacity is not followed"
		}
		return ready(corev1.ConditionTrue, "")(n)
	})

	// What passes our checks and is refused nevertheless is told, and tried again with patience.
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
	var n corev1.Node
	must(t, s.admin.Get(t.Context(), types.NamespacedName{Name: name}, &n))
	n.Labels = map[string]string{"kept": "yes"}
	must(t, s.admin.Update(t.Context(), &n))
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
	must(t, s.admin.Get(t.Context(), types.NamespacedName{Namespace: tenant, Name: name}, &vn))
	must(t, s.admin.Delete(t.Context(), &vn))
	marker := s.auditEnd()
	must(t, s.admin.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
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

func testForeignNode(_ *testing.T, s *suite) {
	s.expectUntouched(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, "not a virtual node")
	must(s, s.admin.Delete(s.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	s.expectCondition(offloadingv1beta1.RunningConditionStatus, node.RegisteredReason, "")
}

func testNodeOfAnotherProvider(_ *testing.T, s *suite) {
	s.expectUntouched(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		wire.TypeLabel: wire.VirtualNodeType, wire.RemoteClusterIDLabel: "rome",
	}}}, `virtual node of provider "rome"`)
}

// expectUntouched has the controller meet a node that it must leave alone: it
// looks, and looks again after a while.
func (s *suite) expectUntouched(existing *corev1.Node, why string) {
	s.Helper()
	must(s, s.admin.Create(s.Context(), existing))
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

// expectCondition waits until the VirtualNode says that of its Node.
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
