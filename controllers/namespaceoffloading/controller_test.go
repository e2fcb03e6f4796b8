// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/testenv"
)

var consumer = controllertest.Cluster{
	ID:      "consumer",
	Options: testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true},
}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &consumer)) }

// virtualNode of a provider, in its tenant namespace; with labels a Node too.
func virtualNode(t *testing.T, tenant, name, provider string, labels map[string]string) *offloading.VirtualNode {
	t.Helper()
	vn := &offloading.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name},
		Spec:       offloading.VirtualNodeSpec{ClusterID: core.ClusterID(provider)},
	}
	consumer.Create(t, vn)
	t.Cleanup(func() { cleanup(t, vn) })
	if labels != nil {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{wire.TypeLabel: wire.VirtualNodeType}}}
		for key, value := range labels {
			node.Labels[key] = value
		}
		consumer.Create(t, node)
		t.Cleanup(func() { cleanup(t, node) })
	}
	return vn
}

// cleanup deletes after the test's own context has ended.
func cleanup(t *testing.T, obj client.Object) {
	t.Helper()
	if err := client.IgnoreNotFound(consumer.Client.Delete(context.WithoutCancel(t.Context()), obj)); err != nil {
		t.Errorf("deleting %s: %v", obj.GetName(), err)
	}
}

func offload(t *testing.T, namespace string, spec offloading.NamespaceOffloadingSpec) *offloading.NamespaceOffloading {
	t.Helper()
	nso := &offloading.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: offloading.NamespaceOffloadingName}, Spec: spec,
	}
	consumer.Create(t, nso)
	t.Cleanup(func() {
		release := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		left := nso.DeepCopy()
		cleanup(t, left)
		if err := client.IgnoreNotFound(consumer.Client.Patch(context.WithoutCancel(t.Context()), left, release)); err != nil {
			t.Errorf("releasing NamespaceOffloading of %s: %v", namespace, err)
		}
	})
	return nso
}

// in selects nodes by one label.
func in(key string, values ...string) corev1.NodeSelector {
	return corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}},
	}}}
}

// awaitMapped waits until the namespace is mapped to twin, "" for not at all.
func awaitMapped(t *testing.T, tenant, provider, namespace, twin string) *offloading.NamespaceMap {
	t.Helper()
	nm := &offloading.NamespaceMap{}
	controllertest.Eventually(t, fmt.Sprintf("%s to be %q on %s", namespace, twin, provider), func() error {
		err := consumer.Client.Get(t.Context(), types.NamespacedName{Namespace: tenant, Name: provider}, nm)
		if err != nil && (twin != "" || !apierrors.IsNotFound(err)) {
			return err
		}
		if now := nm.Spec.DesiredMapping[namespace]; now != twin {
			return fmt.Errorf("it is %q", now)
		}
		return nil
	})
	return nm
}

func awaitOffloadingPhase(t *testing.T, nso *offloading.NamespaceOffloading, want offloading.OffloadingPhaseType) {
	t.Helper()
	controllertest.Eventually(t, fmt.Sprintf("phase %s", want), func() error {
		consumer.Get(t, nso, nso.Namespace, nso.Name)
		if nso.Status.OffloadingPhase != want || nso.Status.ObservedGeneration != nso.Generation {
			return fmt.Errorf("status is %+v", nso.Status)
		}
		return nil
	})
}

func answer(t *testing.T, nm *offloading.NamespaceMap, namespace string, phase offloading.MappingPhase) {
	t.Helper()
	status := fmt.Sprintf(`{"remoteNamespace":%q,"phase":%q}`, nm.Spec.DesiredMapping[namespace], phase)
	if phase == "" {
		status = "null"
	}
	consumer.PatchStatus(t, nm, fmt.Sprintf(`{"status":{"currentMapping":{%q:%s}}}`, namespace, status))
}

func scheduling(t *testing.T, namespace string) string {
	t.Helper()
	ns := &corev1.Namespace{}
	consumer.Get(t, ns, "", namespace)
	return ns.Labels[wire.SchedulingEnabledLabel]
}

func TestExtendsANamespaceAndWithdrawsIt(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	m := consumer.StartManager(t)
	virtualNode(t, tenant, "node-milan", "milan", map[string]string{})
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{})

	twin := namespace + "-consumer"
	nm := awaitMapped(t, tenant, "milan", namespace, twin)
	if nm.Labels[wire.ReplicationLabel] != "true" || nm.Labels[wire.RemoteIDLabel] != "milan" {
		t.Errorf("labels of the map = %v", nm.Labels)
	}
	awaitOffloadingPhase(t, nso, offloading.InProgressOffloadingPhaseType)
	answer(t, nm, namespace, offloading.MappingCreationLoopBackOff)
	awaitOffloadingPhase(t, nso, offloading.AllFailedOffloadingPhaseType)
	answer(t, nm, namespace, offloading.MappingAccepted)
	awaitOffloadingPhase(t, nso, offloading.ReadyOffloadingPhaseType)
	if conditions := nso.Status.RemoteNamespacesConditions["milan"]; len(conditions) != 2 ||
		conditions[0].Reason != wire.ClusterSelectedReason || conditions[1].Reason != wire.NamespaceCreatedReason || nso.Status.RemoteNamespaceName != twin {
		t.Errorf("status = %+v", nso.Status)
	}
	if got := scheduling(t, namespace); got != "true" {
		t.Errorf("scheduling label = %q, want true", got)
	}
	m.Stop(t)

	again := consumer.StartManager(t)
	later := consumer.Namespace(t)
	offload(t, later, offloading.NamespaceOffloadingSpec{})
	awaitMapped(t, tenant, "milan", later, later+"-consumer")
	if writes := again.Writes.About(namespace + "/"); len(writes) > 0 {
		t.Errorf("writes after a restart = %q, want none", writes)
	}

	consumer.Delete(t, nso)
	awaitMapped(t, tenant, "milan", namespace, "")
	awaitOffloadingPhase(t, nso, offloading.TerminatingOffloadingPhaseType)
	consumer.Get(t, nm, tenant, "milan")
	if nm.Spec.DesiredMapping[later] == "" {
		t.Error("the mapping of another namespace was lost")
	}
	answer(t, nm, namespace, "")
	controllertest.Eventually(t, "the NamespaceOffloading to be gone", func() error {
		if err := consumer.Client.Get(t.Context(), client.ObjectKeyFromObject(nso), nso); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it is there: %w", err)
		}
		return nil
	})
	if got := scheduling(t, namespace); got != "" {
		t.Errorf("scheduling label = %q, want none", got)
	}
}

// Several nodes of one provider: any of them is enough, in every order.
func TestOneOfSeveralNodesIsEnough(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	m := consumer.StartManager(t)
	for i, zone := range []string{"south", "north", "west"} {
		virtualNode(t, tenant, fmt.Sprintf("node-turin-%d", i), "turin", map[string]string{"zone": zone})
	}
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{
		ClusterSelector: in("zone", "north"), NamespaceMappingStrategy: offloading.EnforceSameNameMappingStrategyType,
	})
	awaitMapped(t, tenant, "turin", namespace, namespace)
	for range 3 {
		consumer.Patch(t, nso, fmt.Sprintf(`{"metadata":{"annotations":{"touched":%q}}}`, nso.ResourceVersion))
	}
	other := consumer.Namespace(t)
	offload(t, other, offloading.NamespaceOffloadingSpec{})
	awaitMapped(t, tenant, "turin", other, other+"-consumer")
	if writes := m.Writes.About("PATCH", tenant, "namespacemaps/turin"); len(writes) > 2 {
		t.Errorf("writes = %q, want one for each namespace", writes)
	}
}

func TestSelection(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t)
	virtualNode(t, tenant, "node-genoa", "genoa", map[string]string{"zone": "south"})
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{ClusterSelector: in("zone", "north")})
	awaitOffloadingPhase(t, nso, offloading.NoClusterSelectedOffloadingPhaseType)

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-genoa"}}
	consumer.Patch(t, node, `{"metadata":{"labels":{"zone":"north"}}}`)
	awaitMapped(t, tenant, "genoa", namespace, namespace+"-consumer")

	// The node is gone, and with it the label: nothing is deleted on doubt.
	consumer.Delete(t, node)
	other := consumer.Namespace(t)
	offload(t, other, offloading.NamespaceOffloadingSpec{})
	awaitMapped(t, tenant, "genoa", other, other+"-consumer")
	awaitMapped(t, tenant, "genoa", namespace, namespace+"-consumer")

	// It is back and no longer selected: that is certain.
	consumer.Create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-genoa", Labels: map[string]string{wire.TypeLabel: wire.VirtualNodeType, "zone": "south"}}})
	awaitMapped(t, tenant, "genoa", namespace, "")
}

func TestAnInvalidSelectorChangesNothing(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t)
	virtualNode(t, tenant, "node-siena", "siena", map[string]string{"zone": "north"})
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{ClusterSelector: in("zone", "north")})
	awaitMapped(t, tenant, "siena", namespace, namespace+"-consumer")
	consumer.Patch(t, nso, `{"spec":{"clusterSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"Near","values":["x"]}]}]}}}`)
	consumer.AwaitEvent(t, namespace, "NamespaceOffloading", "offloading", "Invalid")
	awaitMapped(t, tenant, "siena", namespace, namespace+"-consumer")
}

func TestStrategies(t *testing.T) {
	tenant := consumer.Namespace(t)
	consumer.StartManager(t)
	virtualNode(t, tenant, "node-parma", "parma", map[string]string{})

	local := consumer.Namespace(t)
	nso := offload(t, local, offloading.NamespaceOffloadingSpec{PodOffloadingStrategy: offloading.LocalPodOffloadingStrategyType})
	awaitMapped(t, tenant, "parma", local, local+"-consumer")
	if got := scheduling(t, local); got != "" {
		t.Errorf("scheduling label with strategy Local = %q, want none", got)
	}
	consumer.Patch(t, nso, `{"spec":{"podOffloadingStrategy":"Remote"}}`)
	controllertest.Eventually(t, "the namespace to be opened", func() error {
		if scheduling(t, local) != "true" {
			return fmt.Errorf("it is not")
		}
		return nil
	})

	selected := consumer.Namespace(t)
	offload(t, selected, offloading.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloading.SelectedNameMappingStrategyType, RemoteNamespaceName: "chosen"})
	awaitMapped(t, tenant, "parma", selected, "chosen")

	long := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("n", 60)}}
	consumer.Create(t, long)
	offload(t, long.Name, offloading.NamespaceOffloadingSpec{})
	consumer.AwaitEvent(t, long.Name, "NamespaceOffloading", "offloading", "Invalid")
}
