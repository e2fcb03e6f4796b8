// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/printable"
)

func TestExtendsANamespaceAndWithdrawsIt(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	m := consumer.StartManager(t)
	virtualNode(t, tenant, "node-milan", "milan", map[string]string{})
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{})

	remoteNamespace := namespace + "-consumer"
	nm := awaitMapped(t, tenant, "milan", namespace, remoteNamespace)
	if nm.Labels[wire.ReplicationLabel] != "true" || nm.Labels[wire.RemoteIDLabel] != "milan" {
		t.Errorf("labels of the map = %v", nm.Labels)
	}
	awaitOffloadingPhase(t, nso, offloading.InProgressOffloadingPhaseType)
	answer(t, nm, namespace, offloading.MappingCreationLoopBackOff)
	awaitOffloadingPhase(t, nso, offloading.AllFailedOffloadingPhaseType)
	answer(t, nm, namespace, offloading.MappingAccepted)
	awaitOffloadingPhase(t, nso, offloading.ReadyOffloadingPhaseType)
	if conditions := nso.Status.RemoteNamespacesConditions["milan"]; len(conditions) != 2 ||
		conditions[0].Reason != wire.ClusterSelectedReason || conditions[1].Reason != wire.NamespaceCreatedReason || nso.Status.RemoteNamespaceName != remoteNamespace {
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
	consumer.AwaitGone(t, nso)
	if got := scheduling(t, namespace); got != "" {
		t.Errorf("scheduling label = %q, want none", got)
	}
}

func TestOneOfTwoProvidersFails(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t)
	virtualNode(t, tenant, "node-monza", "monza", map[string]string{})
	virtualNode(t, tenant, "node-nola", "nola", map[string]string{})
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{})
	monza := awaitMapped(t, tenant, "monza", namespace, namespace+"-consumer")
	nola := awaitMapped(t, tenant, "nola", namespace, namespace+"-consumer")
	answer(t, monza, namespace, offloading.MappingAccepted)
	awaitOffloadingPhase(t, nso, offloading.InProgressOffloadingPhaseType)
	answer(t, nola, namespace, offloading.MappingCreationLoopBackOff)
	awaitOffloadingPhase(t, nso, offloading.SomeFailedOffloadingPhaseType)
	answer(t, nola, namespace, offloading.MappingAccepted)
	awaitOffloadingPhase(t, nso, offloading.ReadyOffloadingPhaseType)
}

// TestOneOfSeveralNodesIsEnough checks that it is sufficient if one of the nodes of a provider is selected. The order
// of the nodes does not matter.
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

// TestSelection checks that a node is selected only if both its Node and its VirtualNode have the labels, because the
// virtual kubelet may change its Node. If only the Node has a label, no namespace is mapped, the virtual kubelet gets
// no access, and an Event describes the remedy.
func TestSelection(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t, letsIn)
	vn := virtualNode(t, tenant, "node-genoa", "genoa", map[string]string{"zone": "south"})
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{ClusterSelector: in("zone", "north")})
	awaitOffloadingPhase(t, nso, offloading.NoClusterSelectedOffloadingPhaseType)

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-genoa"}}
	consumer.Patch(t, node, `{"metadata":{"labels":{"zone":"north"}}}`)
	remedy := "(zone), which a virtual kubelet could have set: the namespace is not offloaded for these labels. " +
		"If they are correct, set them in spec.labels of VirtualNode " + tenant + "/node-genoa"
	event := consumer.AwaitEvent(t, namespace, "NamespaceOffloading", "offloading", "LabelsNotInVirtualNode")
	assert.Contains(t, event.Note, remedy)
	awaitRequired(t, nso, "genoa", corev1.ConditionFalse, remedy)
	looked(t, tenant, "genoa", offloading.NamespaceOffloadingSpec{})
	awaitMapped(t, tenant, "genoa", namespace, "")
	assertNobodyIn(t, namespace)
	consumer.Patch(t, vn, `{"spec":{"labels":{"zone":"north"}}}`)
	awaitMapped(t, tenant, "genoa", namespace, namespace+"-consumer")
	awaitLetIn(t, namespace, "node-genoa")

	// The node can also be selected by its name.
	consumer.Patch(t, nso, `{"spec":{"clusterSelector":{"nodeSelectorTerms":[
		{"matchFields":[{"key":"metadata.name","operator":"In","values":["node-genoa"]}]},
		{"matchExpressions":[{"key":"zone","operator":"In","values":["east"]}]}]}}}`)
	awaitOffloadingPhase(t, nso, offloading.InProgressOffloadingPhaseType)
	awaitMapped(t, tenant, "genoa", namespace, namespace+"-consumer")
	consumer.Patch(t, nso, `{"spec":{"clusterSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["north"]}]}]}}}`)
	awaitOffloadingPhase(t, nso, offloading.InProgressOffloadingPhaseType)

	// The VirtualNode no longer specifies the label, but the Node still has it. The mapping is kept.
	consumer.Patch(t, vn, `{"spec":{"labels":{"zone":"south"}}}`)
	awaitRequired(t, nso, "genoa", corev1.ConditionTrue, remedy)
	awaitMapped(t, tenant, "genoa", namespace, namespace+"-consumer")
	awaitLetIn(t, namespace, "node-genoa")

	// The Node is gone, and its label with it. The mapping is kept, because the selection is uncertain.
	consumer.Delete(t, node)
	looked(t, tenant, "genoa", offloading.NamespaceOffloadingSpec{})
	awaitMapped(t, tenant, "genoa", namespace, namespace+"-consumer")

	// The Node exists again. It is now certain that it is not selected.
	consumer.Create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-genoa", Labels: map[string]string{wire.TypeLabel: wire.VirtualNodeType, "zone": "south"}}})
	awaitMapped(t, tenant, "genoa", namespace, "")
}

// TestANodeDoesNotSelectNamespacesForItself checks that a virtual kubelet cannot select namespaces for its provider,
// although it can set any labels on its Node: not with the ID of another provider, not by the absence of a label, and
// not with a second node.
func TestANodeDoesNotSelectNamespacesForItself(t *testing.T) {
	tenant := consumer.Namespace(t)
	consumer.StartManager(t, letsIn)
	virtualNode(t, tenant, "node-trani", "trani", map[string]string{"tier": "low"})
	virtualNode(t, tenants["trani"], "node-trani-2", "trani", map[string]string{"tier": "low"})
	selectors := map[string]corev1.NodeSelector{
		"by the id": in(wire.RemoteClusterIDLabel, "turin"),
		"by absence": {NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "tier", Operator: corev1.NodeSelectorOpDoesNotExist}},
		}}},
	}
	for _, node := range []string{"node-trani", "node-trani-2"} {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"turin","tier":null}}}`, wire.RemoteClusterIDLabel)
		consumer.Patch(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, patch)
	}
	for name, selector := range selectors {
		t.Run(name, func(t *testing.T) {
			namespace := consumer.Namespace(t)
			nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{ClusterSelector: selector})
			awaitRequired(t, nso, "trani", corev1.ConditionFalse, "set them in spec.labels of VirtualNode")
			looked(t, tenant, "trani", offloading.NamespaceOffloadingSpec{})
			awaitMapped(t, tenant, "trani", namespace, "")
			assertNobodyIn(t, namespace)
		})
	}
}

// TestSelectorsSeeNodesThatAreYetToCome checks that, before a Node is registered, selectors match the labels that the
// Node will have. These include labels from the provider's offer, and labels that every virtual node has.
func TestSelectorsSeeNodesThatAreYetToCome(t *testing.T) {
	tenant := consumer.Namespace(t)
	consumer.StartManager(t)
	lender := virtualNode(t, tenant, "node-trento", "trento", nil)
	consumer.Patch(t, lender, `{"spec":{"storageClasses":[{"storageClassName":"fast"}]}}`)
	virtualNode(t, tenant, "node-udine", "udine", nil)
	claims := virtualNode(t, tenant, "node-varese", "varese", nil) // the Node will have the labels of this VirtualNode
	consumer.Patch(t, claims, fmt.Sprintf(`{"spec":{"labels":{%q:"true",%q:"arm64"}}}`, wire.StorageAvailableLabel, corev1.LabelArchStable))
	extended := func(key string, values ...string) string {
		namespace := consumer.Namespace(t)
		offload(t, namespace, offloading.NamespaceOffloadingSpec{ClusterSelector: in(key, values...)})
		return namespace
	}
	with, without := extended(wire.StorageAvailableLabel, "true"), extended(wire.StorageAvailableLabel, "false")
	common, named := extended(corev1.LabelArchStable, "amd64"), extended(corev1.LabelHostname, "node-udine")
	all := extended(wire.TypeLabel, wire.VirtualNodeType)
	selected := map[string][]string{"trento": {with, common, all}, "udine": {without, common, named, all}, "varese": {with, all}}
	for provider, namespaces := range selected {
		for _, namespace := range namespaces {
			awaitMapped(t, tenant, provider, namespace, namespace+"-consumer")
		}
	}
	for provider, namespaces := range selected {
		for _, namespace := range []string{with, without, common, named, all} {
			if !slices.Contains(namespaces, namespace) {
				awaitMapped(t, tenant, provider, namespace, "")
			}
		}
	}
}

func TestAnInvalidSelectorChangesNothing(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t)
	virtualNode(t, tenant, "node-siena", "siena", map[string]string{"zone": "north"})
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{ClusterSelector: in("zone", "north")})
	awaitMapped(t, tenant, "siena", namespace, namespace+"-consumer")
	consumer.Patch(t, nso, `{"spec":{"clusterSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"Near","values":["x"]}]}]}}}`)
	consumer.AwaitEvent(t, namespace, "NamespaceOffloading", "offloading", "Invalid")
	awaitOffloadingPhase(t, nso, offloading.InvalidClusterSelectorOffloadingPhaseType)
	awaitMapped(t, tenant, "siena", namespace, namespace+"-consumer")
	consumer.Patch(t, nso, `{"spec":{"clusterSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["north"]}]}]}}}`)
	awaitOffloadingPhase(t, nso, offloading.InProgressOffloadingPhaseType)
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
	nso = offload(t, long.Name, offloading.NamespaceOffloadingSpec{})
	consumer.AwaitEvent(t, long.Name, "NamespaceOffloading", "offloading", "Invalid")
	consumer.AwaitEvent(t, long.Name, "Namespace", long.Name, "Invalid")
	awaitOffloadingPhase(t, nso, offloading.AllFailedOffloadingPhaseType)
	if message := readyMessage(nso, "parma"); !strings.Contains(message, "must be no more than 63") {
		t.Errorf("the condition says %q", message)
	}
}

// TestARemoteNamespaceKeepsItsName checks that a remote namespace keeps its name, because it would be orphaned under
// another name. The refusal is reported once.
func TestARemoteNamespaceKeepsItsName(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t, graceOf(time.Hour))
	virtualNode(t, tenant, "node-pavia", "pavia", map[string]string{})
	consumer.Create(t, &offloading.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "pavia", Labels: map[string]string{wire.ReplicationLabel: "true", wire.RemoteIDLabel: "pavia"}},
		Spec:       offloading.NamespaceMapSpec{DesiredMapping: map[string]string{namespace: "former"}},
	})
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{})
	event := consumer.AwaitEvent(t, namespace, "NamespaceOffloading", "offloading", "Invalid")
	for range 3 {
		consumer.Patch(t, nso, fmt.Sprintf(`{"metadata":{"annotations":{"touched":%q}}}`, nso.ResourceVersion))
	}
	other := consumer.Namespace(t)
	offload(t, other, offloading.NamespaceOffloadingSpec{})
	awaitMapped(t, tenant, "pavia", other, other+"-consumer")
	awaitMapped(t, tenant, "pavia", namespace, "former")
	if events := consumer.Events(t, namespace, "NamespaceOffloading", "offloading"); len(events) != 1 || events[0].Series != nil {
		t.Errorf("events = %v, want one; the first is %q", events, event.Note)
	}
}

// TestTwoNamespacesCannotHaveOneRemoteNamespace checks that the second namespace with the same remote name is refused.
// Its status reports this. It is mapped when the name is free.
func TestTwoNamespacesCannotHaveOneRemoteNamespace(t *testing.T) {
	tenant, first, second := consumer.Namespace(t), consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t)
	virtualNode(t, tenant, "node-prato", "prato", map[string]string{})
	chosen := offloading.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloading.SelectedNameMappingStrategyType, RemoteNamespaceName: "one"}
	has, wants := offload(t, first, chosen), (*offloading.NamespaceOffloading)(nil)
	nm := awaitMapped(t, tenant, "prato", first, "one")
	wants = offload(t, second, chosen)
	event := consumer.AwaitEvent(t, second, "NamespaceOffloading", "offloading", "NameTaken")
	if !strings.Contains(event.Note, "one belongs to namespace "+first) || !strings.Contains(event.Note, "unoffload "+first) {
		t.Errorf("note = %q, want who has the name and the remedy", event.Note)
	}
	awaitOffloadingPhase(t, wants, offloading.AllFailedOffloadingPhaseType)
	if conditions := wants.Status.RemoteNamespacesConditions["prato"]; len(conditions) != 2 || conditions[1].Status != corev1.ConditionFalse || !strings.Contains(conditions[1].Message, first) {
		t.Errorf("conditions = %+v", conditions)
	}
	answer(t, nm, first, offloading.MappingAccepted)
	awaitOffloadingPhase(t, has, offloading.ReadyOffloadingPhaseType)
	awaitMapped(t, tenant, "prato", second, "")

	consumer.Delete(t, has)
	awaitMapped(t, tenant, "prato", first, "")
	answer(t, nm, first, "") // the remote namespace is gone
	awaitMapped(t, tenant, "prato", second, "one")
	awaitOffloadingPhase(t, wants, offloading.InProgressOffloadingPhaseType)
}

// TestTheProviderTellsWhoseRemoteNamespaceItIs checks a map of another client that maps two namespaces to the same
// remote namespace. Neither of them is ready until the provider has accepted exactly one.
func TestTheProviderTellsWhoseRemoteNamespaceItIs(t *testing.T) {
	tenant, first, second := consumer.Namespace(t), consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t, graceOf(time.Hour))
	virtualNode(t, tenant, "node-rho", "rho", map[string]string{})
	nm := &offloading.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "rho", Labels: map[string]string{wire.ReplicationLabel: "true", wire.RemoteIDLabel: "rho"}},
		Spec:       offloading.NamespaceMapSpec{DesiredMapping: map[string]string{first: "one", second: "one"}},
	}
	consumer.Create(t, nm)
	answer(t, nm, first, offloading.MappingAccepted)
	answer(t, nm, second, offloading.MappingAccepted)
	chosen := offloading.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloading.SelectedNameMappingStrategyType, RemoteNamespaceName: "one"}
	one, other := offload(t, first, chosen), offload(t, second, chosen)
	for _, nso := range []*offloading.NamespaceOffloading{one, other} {
		awaitOffloadingPhase(t, nso, offloading.AllFailedOffloadingPhaseType)
		consumer.AwaitEvent(t, nso.Namespace, "NamespaceOffloading", "offloading", "NameTaken")
	}
	answer(t, nm, second, offloading.MappingCreationLoopBackOff)
	awaitOffloadingPhase(t, one, offloading.ReadyOffloadingPhaseType)
	awaitOffloadingPhase(t, other, offloading.AllFailedOffloadingPhaseType)
}

// TestOneOfManyGetsARemoteNamespace checks that only one of many concurrent requests gets the remote namespace.
func TestOneOfManyGetsARemoteNamespace(t *testing.T) {
	tenant, before := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t)
	vn := virtualNode(t, tenant, "node-sora", "sora", map[string]string{})
	offload(t, before, offloading.NamespaceOffloadingSpec{})
	nm := awaitMapped(t, tenant, "sora", before, before+"-consumer") // the map must exist before the requests are made
	var all []*offloading.NamespaceOffloading
	for range 8 {
		all = append(all, offload(t, consumer.Namespace(t), offloading.NamespaceOffloadingSpec{
			NamespaceMappingStrategy: offloading.SelectedNameMappingStrategyType, RemoteNamespaceName: "one", ClusterSelector: in("open", "true"),
		}))
	}
	for _, nso := range all {
		awaitOffloadingPhase(t, nso, offloading.NoClusterSelectedOffloadingPhaseType)
	}
	// This label selects the provider for all namespaces at the same time.
	consumer.Patch(t, vn, `{"spec":{"labels":{"open":"true"}}}`)
	consumer.Patch(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-sora"}}, `{"metadata":{"labels":{"open":"true"}}}`)
	controllertest.Eventually(t, "one to have the remote namespace, and the others to wait", func() error {
		phases := map[offloading.OffloadingPhaseType]int{}
		for _, nso := range all {
			consumer.Get(t, nso, nso.Namespace, nso.Name)
			phases[nso.Status.OffloadingPhase]++
		}
		if phases[offloading.InProgressOffloadingPhaseType] != 1 || phases[offloading.AllFailedOffloadingPhaseType] != len(all)-1 {
			return fmt.Errorf("phases are %v", phases)
		}
		return nil
	})
	if consumer.Get(t, nm, tenant, "sora"); len(nm.Spec.DesiredMapping) != 2 {
		t.Errorf("the map has %v, want one of them", nm.Spec.DesiredMapping)
	}
}

// TestADeletedMapIsMadeAgain checks that a NamespaceMap that is deleted is created again, and that all
// NamespaceOffloadings keep their remote namespaces.
func TestADeletedMapIsMadeAgain(t *testing.T) {
	tenant, first, second := consumer.Namespace(t), consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t)
	virtualNode(t, tenant, "node-terni", "terni", map[string]string{})
	for _, namespace := range []string{first, second} {
		offload(t, namespace, offloading.NamespaceOffloadingSpec{})
		awaitMapped(t, tenant, "terni", namespace, namespace+"-consumer")
	}
	lost := awaitMapped(t, tenant, "terni", first, first+"-consumer")
	consumer.Delete(t, lost)
	controllertest.Eventually(t, "another map", func() error {
		nm := &offloading.NamespaceMap{}
		if err := consumer.Client.Get(t.Context(), client.ObjectKeyFromObject(lost), nm); err != nil {
			return err
		}
		if nm.UID == lost.UID || len(nm.Spec.DesiredMapping) != 2 {
			return fmt.Errorf("it is %s with %v, finalizers %q", nm.UID, nm.Spec.DesiredMapping, nm.Finalizers)
		}
		return nil
	})
}

func TestADeadProviderIsNotWaitedFor(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t)
	virtualNode(t, tenant, "node-lucca", "lucca", map[string]string{})
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{})
	nm := awaitMapped(t, tenant, "lucca", namespace, namespace+"-consumer")
	answer(t, nm, namespace, offloading.MappingAccepted)
	consumer.Delete(t, nso)
	awaitMapped(t, tenant, "lucca", namespace, "")
	awaitOffloadingPhase(t, nso, offloading.TerminatingOffloadingPhaseType)

	declareDead(t, "lucca")
	consumer.AwaitGone(t, nso)
}

// readyMessage returns the message of the condition Ready of the remote namespace on a provider.
func readyMessage(nso *offloading.NamespaceOffloading, provider string) string {
	for _, condition := range nso.Status.RemoteNamespacesConditions[provider] {
		if condition.Type == offloading.NamespaceReady {
			return condition.Message
		}
	}
	return ""
}

// TestTheReasonOfAProviderReachesTheUsers checks that the condition contains the reason why a provider does not create
// a remote namespace, and that Events about the NamespaceOffloading and its namespace contain it, because users of the
// namespace have no access to the provider. Control characters are escaped.
func TestTheReasonOfAProviderReachesTheUsers(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t)
	virtualNode(t, tenant, "node-bari", "bari", map[string]string{})
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{})
	nm := awaitMapped(t, tenant, "bari", namespace, namespace+"-consumer")
	said := func(phase, message string) {
		t.Helper()
		patch, err := json.Marshal(map[string]any{"status": map[string]any{"currentMapping": map[string]any{
			namespace: map[string]any{"remoteNamespace": namespace + "-consumer", "phase": phase, "message": message}}}})
		require.NoError(t, err)
		consumer.PatchStatus(t, nm, string(patch))
	}
	awaitMessage := func(parts ...string) {
		t.Helper()
		controllertest.Eventually(t, "the condition", func() error {
			consumer.Get(t, nso, namespace, offloading.NamespaceOffloadingName)
			message := readyMessage(nso, "bari")
			for _, part := range parts {
				if !strings.Contains(message, part) {
					return fmt.Errorf("it says %.200q, not %q", message, part)
				}
			}
			if len(message) > 2*offloading.MaxMappingMessage || !printable.IsLine(message) {
				return fmt.Errorf("it says %q", message)
			}
			return nil
		})
	}
	said("CreationLoopBackOff", "the name is reserved\x1b[2J\n"+strings.Repeat("x", 5000))
	awaitMessage("does not create", `the name is reserved\u001b[2J xxx`)
	for kind, name := range map[string]string{"NamespaceOffloading": offloading.NamespaceOffloadingName, "Namespace": namespace} {
		note := consumer.AwaitEvent(t, namespace, kind, name, "RemoteNamespaceRefused").Note
		if !strings.Contains(note, `cluster bari: the name is reserved\u001b[2J xxx`) || !printable.IsLine(note) {
			t.Errorf("the Event of the %s says %q", kind, note)
		}
	}
	// The condition also contains the provider's message about a namespace that exists but cannot be used yet.
	consumer.PatchStatus(t, nm, fmt.Sprintf(`{"status":{"currentMapping":{%q:{"phase":null,"message":"no quota is left"}}}}`, namespace))
	awaitMessage("Waiting for the provider", "no quota is left")
	said("Accepted", "left over")
	awaitOffloadingPhase(t, nso, offloading.ReadyOffloadingPhaseType)
	if message := readyMessage(nso, "bari"); strings.Contains(message, "left over") {
		t.Errorf("the condition of a namespace that can be used says %q", message)
	}
}

// declareDead declares a provider dead.
func declareDead(t *testing.T, provider string) {
	t.Helper()
	cluster := &core.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: provider}}
	controllertest.Eventually(t, "the ForeignCluster", func() error { return consumer.Client.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster) })
	consumer.Patch(t, cluster, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, wire.PermanentlyUnreachableAnnotation))
}
