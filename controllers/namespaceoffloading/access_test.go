// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package namespaceoffloading_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
)

const extendedRole = "liqo-virtual-kubelet-extended"

// letsIn is an option of the manager that grants virtual kubelets access to offloaded namespaces.
func letsIn(o *controllers.Options) { o.ExtendedClusterRole = extendedRole }

// awaitLetIn waits until exactly the virtual kubelets with these names have access to the namespace.
func awaitLetIn(t *testing.T, namespace string, names ...string) *rbacv1.RoleBinding {
	t.Helper()
	binding := &rbacv1.RoleBinding{}
	controllertest.Eventually(t, fmt.Sprintf("%v to be let into %s", names, namespace), func() error {
		if err := consumer.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: extendedRole}, binding); err != nil {
			return err
		}
		var actual []string
		for _, subject := range binding.Subjects {
			actual = append(actual, subject.Name)
		}
		slices.Sort(actual)
		if !slices.Equal(actual, names) {
			return fmt.Errorf("they are %v", actual)
		}
		return nil
	})
	return binding
}

func foreignBinding(t *testing.T, namespace string) *rbacv1.RoleBinding {
	t.Helper()
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: extendedRole},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: extendedRole},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "jane"}},
	}
	consumer.Create(t, binding)
	return binding
}

// assertNobodyIn checks that no virtual kubelet has access to the namespace.
func assertNobodyIn(t *testing.T, namespace string) {
	t.Helper()
	bindings := &rbacv1.RoleBindingList{}
	if err := consumer.Client.List(t.Context(), bindings, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range bindings.Items {
		t.Errorf("RoleBinding %s/%s lets in %v, want none", namespace, bindings.Items[i].Name, bindings.Items[i].Subjects)
	}
}

func TestVirtualKubeletsAreLetInWhileTheyAreSelected(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	m := consumer.StartManager(t, letsIn)
	virtualNode(t, tenant, "node-asti", "asti", map[string]string{"zone": "north"})
	virtualNode(t, tenant, "node-bra", "bra", map[string]string{"zone": "south"})
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{ClusterSelector: in("zone", "north")})
	nm := awaitMapped(t, tenant, "asti", namespace, namespace+"-consumer")
	binding := awaitLetIn(t, namespace, "node-asti")
	if subject := binding.Subjects[0]; subject.Kind != "ServiceAccount" || subject.Namespace != tenant || binding.RoleRef.Name != extendedRole {
		t.Errorf("binding = %v %v", binding.Subjects, binding.RoleRef)
	}
	writes := m.Writes.About()
	opened := slices.IndexFunc(writes, func(w string) bool { return strings.HasSuffix(w, namespace+"/rolebindings") })
	mapped := slices.IndexFunc(writes, func(w string) bool { return strings.HasSuffix(w, "/namespacemaps/asti") })
	if opened < 0 || mapped < opened {
		t.Errorf("writes = %q, want the RoleBinding before the mapping", writes)
	}

	consumer.Patch(t, binding, `{"metadata":{"labels":{"team":"platform"},"annotations":{"note":"theirs"}}}`)
	consumer.Patch(t, nso, `{"spec":{"clusterSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["south"]}]}]}}}`)
	if binding = awaitLetIn(t, namespace, "node-bra"); binding.Labels["team"] != "platform" || binding.Annotations["note"] != "theirs" {
		t.Errorf("the RoleBinding has %v %v, want the label and the annotation of another client, too", binding.Labels, binding.Annotations)
	}
	consumer.Patch(t, nso, `{"spec":{"clusterSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["east"]}]}]}}}`)
	consumer.AwaitGone(t, binding)
	awaitMapped(t, tenant, "asti", namespace, "")
	awaitMapped(t, tenant, "bra", namespace, "")

	consumer.Patch(t, nso, `{"spec":{"clusterSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["north"]}]}]}}}`)
	awaitMapped(t, tenant, "asti", namespace, namespace+"-consumer")
	awaitLetIn(t, namespace, "node-asti")
	answer(t, nm, namespace, offloading.MappingAccepted)
	consumer.Delete(t, nso)
	awaitOffloadingPhase(t, nso, offloading.TerminatingOffloadingPhaseType)
	binding = awaitLetIn(t, namespace, "node-asti") // access is kept while the remote namespace exists
	answer(t, nm, namespace, "")
	consumer.AwaitGone(t, nso)
	consumer.AwaitGone(t, binding)
}

// TestAForeignRoleBindingKeepsNewMappingsBack checks that a RoleBinding with another owner is left unchanged and
// reported in an Event. When the RoleBinding is gone, the namespace is offloaded. Only a retry can detect this.
func TestAForeignRoleBindingKeepsNewMappingsBack(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	m := consumer.StartManager(t, letsIn)
	virtualNode(t, tenant, "node-cuneo", "cuneo", map[string]string{})
	foreign := foreignBinding(t, namespace)
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{})
	event := consumer.AwaitEvent(t, namespace, "NamespaceOffloading", "offloading", "FailedAccess")
	if !strings.Contains(event.Note, namespace+"/"+extendedRole) || !strings.Contains(event.Note, "delete it to have it recreated") {
		t.Errorf("note = %q, want the RoleBinding and the remedy", event.Note)
	}
	awaitOffloadingPhase(t, nso, offloading.InProgressOffloadingPhaseType)
	if conditions := nso.Status.RemoteNamespacesConditions["cuneo"]; len(conditions) != 2 || !strings.Contains(conditions[1].Message, "not mapped") {
		t.Errorf("conditions = %+v", conditions)
	}
	if got := scheduling(t, namespace); got != "true" {
		t.Errorf("scheduling label = %q, want true", got)
	}
	awaitMapped(t, tenant, "cuneo", namespace, "")
	if writes := m.Writes.About(namespace, "rolebindings"); len(writes) > 0 {
		t.Errorf("writes = %q, want none to the RoleBinding, not even attempts", writes)
	}

	consumer.Delete(t, foreign)
	awaitMapped(t, tenant, "cuneo", namespace, namespace+"-consumer")
	awaitLetIn(t, namespace, "node-cuneo")
}

// TestOnlyTheTenantNamespaceNamesVirtualKubelets checks that a user who may create VirtualNodes outside the tenant
// namespaces cannot use them to get access to Secrets.
func TestOnlyTheTenantNamespaceNamesVirtualKubelets(t *testing.T) {
	tenant, elsewhere, namespace := consumer.Namespace(t), consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t, letsIn)
	virtualNode(t, tenant, "node-domo", "domo", map[string]string{})
	offload(t, namespace, offloading.NamespaceOffloadingSpec{})
	awaitMapped(t, tenant, "domo", namespace, namespace+"-consumer")
	awaitLetIn(t, namespace, "node-domo")
	virtualNode(t, elsewhere, "intruder", "domo", map[string]string{})
	event := consumer.AwaitEvent(t, namespace, "NamespaceOffloading", "offloading", "FailedAccess")
	if !strings.Contains(event.Note, elsewhere+"/intruder") || !strings.Contains(event.Note, "is "+tenant) {
		t.Errorf("note = %q, want the VirtualNode and where it belongs", event.Note)
	}
	awaitLetIn(t, namespace, "node-domo")
}

// TestAConsumerIsNoVirtualKubelet checks that the ServiceAccount with the reserved name gets no access to offloaded
// namespaces, because it belongs to the other cluster as a consumer of this cluster.
func TestAConsumerIsNoVirtualKubelet(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t, letsIn)
	virtualNode(t, tenant, "node-gela", "gela", map[string]string{})
	virtualNode(t, tenant, wire.ConsumerServiceAccount, "gela", map[string]string{})
	offload(t, namespace, offloading.NamespaceOffloadingSpec{})
	awaitMapped(t, tenant, "gela", namespace, namespace+"-consumer")
	event := consumer.AwaitEvent(t, namespace, "NamespaceOffloading", "offloading", "FailedAccess")
	assert.Contains(t, event.Note, wire.ConsumerServiceAccount+" gets no access to this namespace: its name is reserved")
	awaitLetIn(t, namespace, "node-gela")
}

// TestAnUnknownClusterGetsNothing checks that a VirtualNode of an unknown cluster gets no access if its namespace is
// not a tenant namespace, and that a NamespaceMap in such a namespace is ignored.
func TestAnUnknownClusterGetsNothing(t *testing.T) {
	tenant, elsewhere, namespace := consumer.Namespace(t), consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t, letsIn)
	virtualNode(t, tenant, "node-elba", "elba", map[string]string{})
	ghost := &offloading.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "ghost"}, Spec: offloading.VirtualNodeSpec{ClusterID: "ghost"}}
	forged := &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: elsewhere, Name: "ghost", Labels: map[string]string{wire.ReplicationLabel: "true", wire.RemoteIDLabel: "ghost"},
	}}
	consumer.Create(t, ghost)
	consumer.Create(t, forged)
	t.Cleanup(func() { cleanup(t, ghost); cleanup(t, forged) })
	offload(t, namespace, offloading.NamespaceOffloadingSpec{})
	awaitMapped(t, tenant, "elba", namespace, namespace+"-consumer")
	awaitLetIn(t, namespace, "node-elba")
	if consumer.Get(t, forged, elsewhere, "ghost"); len(forged.Spec.DesiredMapping) > 0 {
		t.Errorf("the forged map has %v", forged.Spec.DesiredMapping)
	}
}

// TestALeftoverRoleBindingIsDeleted checks that the RoleBinding of a namespace that was withdrawn while RoleBindings
// were not managed is deleted when they are managed again.
func TestALeftoverRoleBindingIsDeleted(t *testing.T) {
	namespace := consumer.Namespace(t)
	leftover := foreignBinding(t, namespace)
	consumer.Patch(t, leftover, `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"liqo"}}}`)
	foreign := foreignBinding(t, consumer.Namespace(t))
	consumer.StartManager(t, letsIn)
	consumer.AwaitGone(t, leftover)
	consumer.Get(t, foreign, foreign.Namespace, foreign.Name)
}

// TestWhatIsExtendedStaysSoBesideAForeignRoleBinding checks that a RoleBinding without the label is not changed,
// because it has another owner. All steps that do not need the RoleBinding are still carried out.
func TestWhatIsExtendedStaysSoBesideAForeignRoleBinding(t *testing.T) {
	tenant, namespace := consumer.Namespace(t), consumer.Namespace(t)
	consumer.StartManager(t, letsIn)
	virtualNode(t, tenant, "node-alba", "alba", map[string]string{"zone": "north"})
	virtualNode(t, tenant, "node-biella", "biella", map[string]string{"zone": "south"})
	nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{ClusterSelector: in("zone", "north", "south")})
	awaitMapped(t, tenant, "alba", namespace, namespace+"-consumer")
	awaitMapped(t, tenant, "biella", namespace, namespace+"-consumer")

	binding := awaitLetIn(t, namespace, "node-alba", "node-biella")
	consumer.Patch(t, binding, `{"metadata":{"labels":null}}`)
	consumer.Patch(t, nso, `{"spec":{"clusterSelector":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"In","values":["north"]}]}]}}}`)
	consumer.AwaitEvent(t, namespace, "NamespaceOffloading", "offloading", "FailedAccess")
	awaitMapped(t, tenant, "biella", namespace, "")
	awaitMapped(t, tenant, "alba", namespace, namespace+"-consumer")

	consumer.Delete(t, nso)
	consumer.AwaitGone(t, nso)
	if left := awaitLetIn(t, namespace, "node-alba", "node-biella"); left.ResourceVersion != binding.ResourceVersion {
		t.Error("the RoleBinding of another client was changed")
	}
}

// TestAFailedStepIsRetried checks for every step that it is retried after a failure, even if the status could be
// written, because no watch event shows that the step has become possible. The other steps are not delayed.
func TestAFailedStepIsRetried(t *testing.T) {
	tenant := consumer.Namespace(t)
	m := consumer.StartManager(t)
	virtualNode(t, tenant, "node-ivrea", "ivrea", map[string]string{})
	// The NamespaceMap already exists, so the controller only has to add an entry.
	first := consumer.Namespace(t)
	offload(t, first, offloading.NamespaceOffloadingSpec{})
	awaitMapped(t, tenant, "ivrea", first, first+"-consumer")

	for _, step := range []struct{ resource, path, label, remoteNamespace string }{
		{resource: "namespaces", path: "/namespaces/%s", remoteNamespace: "%s-consumer"},
		{resource: "namespacemaps", path: "/namespacemaps/ivrea", label: "true"},
	} {
		t.Run(step.resource, func(t *testing.T) {
			namespace := consumer.Namespace(t)
			in := func(format string) string { return strings.ReplaceAll(format, "%s", namespace) }
			mend := consumer.Forbid(t, "patch", step.resource)
			before := len(m.Writes.About("PATCH", in(step.path)))
			nso := offload(t, namespace, offloading.NamespaceOffloadingSpec{})
			awaitOffloadingPhase(t, nso, offloading.InProgressOffloadingPhaseType)
			awaitMapped(t, tenant, "ivrea", namespace, in(step.remoteNamespace))
			controllertest.Eventually(t, "attempts that fail", func() error {
				if len(m.Writes.About("PATCH", in(step.path))) == before {
					return fmt.Errorf("there was none")
				}
				return nil
			})
			if got := scheduling(t, namespace); got != step.label {
				t.Errorf("scheduling label = %q, want %q", got, step.label)
			}
			mend()
			awaitMapped(t, tenant, "ivrea", namespace, namespace+"-consumer")
			controllertest.Eventually(t, "the namespace to be opened", func() error {
				if got := scheduling(t, namespace); got != "true" {
					return fmt.Errorf("label %s is %q", wire.SchedulingEnabledLabel, got)
				}
				return nil
			})
		})
	}
}
