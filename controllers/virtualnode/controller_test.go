// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package virtualnode_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/remotedata"
	"github.com/refract-project/refract/test/support/testenv"
)

var consumer = controllertest.Cluster{ID: "rome", Options: testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true}}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &consumer)) }

// virtualNode creates a VirtualNode of a provider, its Node, and the Deployment of its virtual kubelet. No virtual
// kubelet is running; end does its work.
func virtualNode(t *testing.T, provider, name string) *offloading.VirtualNode {
	t.Helper()
	tenant := wire.TenantNamespace(provider)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant, Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: provider}}}
	if consumer.Client.Get(t.Context(), types.NamespacedName{Name: tenant}, &corev1.Namespace{}) != nil {
		consumer.Create(t, namespace)
	}
	consumer.Create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{wire.TypeLabel: wire.VirtualNodeType, wire.RemoteClusterIDLabel: provider}}})
	labels := map[string]string{wire.ComponentLabel: wire.VirtualKubeletComponent, wire.RemoteClusterIDLabel: provider, wire.VirtualNodeLabel: name}
	for _, object := range (rbac.Kubelet{NodeName: name, TenantNamespace: tenant, KubeconfigSecret: "kubeconfig", Subject: rbac.ServiceAccount(tenant, name)}).Objects() {
		if strings.HasSuffix(object.GetName(), "-"+name) {
			object.SetLabels(labels)
		}
		require.NoError(t, client.IgnoreAlreadyExists(consumer.Client.Create(t.Context(), object)))
	}
	consumer.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, Labels: labels}})
	consumer.Create(t, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "vk-" + name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "virtual-kubelet", Image: "vk"}}}},
		},
	})
	vn := &offloading.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, Labels: map[string]string{wire.RemoteClusterIDLabel: provider}},
		Spec:       offloading.VirtualNodeSpec{ClusterID: core.ClusterID(provider), KubeconfigSecretRef: &corev1.LocalObjectReference{Name: "kubeconfig-" + name}},
	}
	require.NoError(t, consumer.Grant(t.Context(), rbac.Manager{Subject: rbac.User(controllertest.ManagerUser)}.Provider(tenant, "kubeconfig-"+name)...))
	consumer.Create(t, vn)
	return vn
}

// access returns the names of the ServiceAccount, the roles and the bindings of a node's virtual kubelet.
func access(t *testing.T, node string) (names []string) {
	t.Helper()
	for _, list := range []client.ObjectList{&rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &corev1.ServiceAccountList{}} {
		require.NoError(t, consumer.Client.List(t.Context(), list, client.MatchingLabels{wire.VirtualNodeLabel: node}))
		require.NoError(t, meta.EachListItem(list, func(object runtime.Object) error {
			names = append(names, fmt.Sprintf("%T %s", object, object.(client.Object).GetName()))
			return nil
		}))
	}
	return names
}

// besides creates the objects that refractctl creates for a node's virtual kubelet in addition to its permissions.
// Their owner is the argument owner.
func besides(t *testing.T, vn, owner *offloading.VirtualNode) []client.Object {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: vn.Namespace, Name: "vk-" + vn.Name, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: offloading.GroupVersion.String(), Kind: offloading.VirtualNodeKind, Name: owner.Name, UID: owner.UID}}}
	secret := &corev1.Secret{ObjectMeta: *meta.DeepCopy()}
	secret.Name = "kubeconfig-" + vn.Name
	objects := []client.Object{&policyv1.PodDisruptionBudget{ObjectMeta: meta}, &networkingv1.NetworkPolicy{ObjectMeta: meta}, secret}
	for _, object := range objects {
		consumer.Create(t, object)
	}
	return objects
}

// pod creates a running pod on a node.
func pod(t *testing.T, namespace, name, node string) *corev1.Pod {
	t.Helper()
	created := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	consumer.Create(t, created)
	consumer.PatchStatus(t, created, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
	return created
}

// daemon creates the pod of a DaemonSet that tolerates all taints, on the node.
func daemon(t *testing.T, namespace, node string) *corev1.Pod {
	t.Helper()
	labels := map[string]string{"app": "daemon"}
	consumer.Create(t, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "daemon"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, Containers: []corev1.Container{{Name: "c", Image: "i"}},
				Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
					{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}},
			}},
		},
	})
	pods := &corev1.PodList{}
	controllertest.Eventually(t, "the pod of the DaemonSet", func() error {
		if err := consumer.Client.List(t.Context(), pods, client.InNamespace(namespace), client.MatchingLabels(labels)); err != nil || len(pods.Items) == 0 {
			return fmt.Errorf("there is none (%w)", err)
		}
		return nil
	})
	found := &pods.Items[0]
	require.NoError(t, consumer.Client.SubResource("binding").Create(t.Context(), found, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}}))
	return found
}

// budget creates a disruption budget that prevents the eviction of a pod.
func budget(t *testing.T, pod *corev1.Pod) *policyv1.PodDisruptionBudget {
	t.Helper()
	created := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}},
	}
	consumer.Create(t, created)
	controllertest.Eventually(t, "the disruption budget to be evaluated", func() error {
		consumer.Get(t, created, pod.Namespace, pod.Name)
		if created.Status.CurrentHealthy != 1 {
			return fmt.Errorf("%d pods are healthy", created.Status.CurrentHealthy)
		}
		return nil
	})
	return created
}

func awaitEvicted(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		controllertest.Eventually(t, "the eviction of "+pod.Name, func() error {
			if consumer.Get(t, pod, pod.Namespace, pod.Name); pod.DeletionTimestamp == nil {
				return fmt.Errorf("it goes on")
			}
			return nil
		})
	}
}

// end deletes pods, as the virtual kubelet does when the pods have ended on the provider.
func end(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		require.NotNil(t, pod.DeletionTimestamp, "pod %s was not evicted", pod.Name)
		consumer.Delete(t, pod)
	}
}

func awaitCondition(t *testing.T, vn *offloading.VirtualNode, kind offloading.VirtualNodeConditionType, status offloading.VirtualNodeConditionStatus, reason, message string) {
	t.Helper()
	controllertest.Eventually(t, fmt.Sprintf("condition %s of VirtualNode %s to be %s, %s", kind, vn.Name, status, reason), func() error {
		consumer.Get(t, vn, vn.Namespace, vn.Name)
		for _, got := range vn.Status.Conditions {
			if got.Type == kind && got.Status == status && got.Reason == reason && strings.Contains(got.Message, message) {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %+v", vn.Status.Conditions)
	})
}

func awaitFinalizer(t *testing.T, vn *offloading.VirtualNode) {
	t.Helper()
	controllertest.Eventually(t, "the finalizer of "+vn.Name, func() error {
		if consumer.Get(t, vn, vn.Namespace, vn.Name); len(vn.Finalizers) == 0 {
			return fmt.Errorf("there is none")
		}
		return nil
	})
}

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func deployment(vn *offloading.VirtualNode) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: vn.Namespace, Name: "vk-" + vn.Name}}
}

// TestAVirtualNodeIsDrainedBeforeItGoes checks that a virtual node is removed after its pods have ended, within the
// limits of disruption budgets. Afterwards, its virtual kubelet is removed. Meanwhile, a second virtual node of the
// same provider is removed, and a third one is kept.
func TestAVirtualNodeIsDrainedBeforeItGoes(t *testing.T) {
	shop := consumer.Namespace(t)
	vn, other, stays := virtualNode(t, "milan", "milan"), virtualNode(t, "milan", "milan-2"), virtualNode(t, "milan", "milan-3")
	m := consumer.StartManager(t)
	free, held := pod(t, shop, "free", "milan"), pod(t, shop, "held", "milan")
	granted := access(t, "milan")
	elsewhere, daemon := pod(t, shop, "elsewhere", "milan-3"), daemon(t, shop, "milan")
	limit := budget(t, held)
	awaitFinalizer(t, vn)
	awaitFinalizer(t, other)
	beside, foreign := besides(t, vn, vn), besides(t, other, vn)

	consumer.Delete(t, vn)
	awaitEvicted(t, free)
	awaitCondition(t, vn, offloading.NodeConditionType, offloading.DrainingConditionStatus, "Draining", "2 pods left on the node, 1 terminating; 1 blocked by a PodDisruptionBudget, such as "+shop+"/held")
	end(t, free)
	awaitCondition(t, vn, offloading.NodeConditionType, offloading.DrainingConditionStatus, "Draining", "1 pod left")
	current := node("milan")
	if consumer.Get(t, current, "", "milan"); !current.Spec.Unschedulable {
		t.Error("the node is not cordoned")
	}
	for _, object := range foreign {
		require.NoError(t, consumer.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object))
	}
	consumer.Delete(t, other)
	consumer.AwaitGone(t, node("milan-2"))
	consumer.AwaitGone(t, other)
	for _, object := range foreign {
		require.NoError(t, consumer.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object), "another virtual node owns it")
	}

	consumer.Get(t, deployment(vn), vn.Namespace, "vk-milan")
	if consumer.Get(t, held, shop, "held"); held.DeletionTimestamp != nil {
		t.Fatal("a pod was evicted against its disruption budget")
	}
	if consumer.Get(t, daemon, shop, daemon.Name); daemon.DeletionTimestamp != nil {
		t.Error("a pod of a DaemonSet was evicted, which would come back at once")
	}
	consumer.Delete(t, limit)
	awaitEvicted(t, held)
	end(t, held)
	consumer.AwaitGone(t, node("milan"))
	// The virtual kubelet terminates the pod on the provider after Kubernetes has deleted it on the consumer.
	consumer.Get(t, deployment(vn), vn.Namespace, "vk-milan")
	consumer.Delete(t, daemon)
	consumer.AwaitGone(t, deployment(vn))
	consumer.AwaitGone(t, vn)
	for _, object := range beside {
		if err := consumer.Client.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
			t.Errorf("%T %s is left: %v", object, object.GetName(), err)
		}
	}
	for _, path := range []string{"/poddisruptionbudgets/vk-milan", "/networkpolicies/vk-milan", "/secrets/kubeconfig-milan"} {
		if !slices.ContainsFunc(m.Writes.About("DELETE", path), func(request string) bool { return strings.HasSuffix(request, path) }) {
			t.Errorf("%s is left to the garbage collector", path)
		}
	}

	if left := access(t, "milan"); len(granted) != 10 || len(left) > 0 {
		t.Errorf("of %q these are left: %q", granted, left)
	}
	if kept := access(t, "milan-3"); len(kept) != len(granted) {
		t.Errorf("of the other virtual node these are left: %q", kept)
	}
	consumer.Get(t, elsewhere, shop, "elsewhere")
	current = node("milan-3")
	consumer.Get(t, current, "", "milan-3")
	if elsewhere.DeletionTimestamp != nil || current.Spec.Unschedulable {
		t.Error("another virtual node of the provider was drained as well")
	}
	consumer.Get(t, deployment(stays), stays.Namespace, "vk-milan-3")
}

// TestADrainedVirtualNodeThatAPolicyHolds checks that an Event reports if a policy denies a deletion, and that the
// deletion is retried. If no role permits a deletion, the object is left to the garbage collector.
func TestADrainedVirtualNodeThatAPolicyHolds(t *testing.T) {
	vn := virtualNode(t, "ravenna", "ravenna")
	beside := besides(t, vn, vn)
	policy := beside[1]
	mend := consumer.Deny(t, "refract-denies-deletions", admissionv1.Delete, "networking.k8s.io", "networkpolicies", vn.Namespace, func(c client.Client) error {
		return c.Delete(t.Context(), policy, client.DryRunAll)
	})
	m := consumer.StartManager(t)
	awaitFinalizer(t, vn)
	consumer.Delete(t, vn)
	event := consumer.AwaitEvent(t, vn.Namespace, offloading.VirtualNodeKind, vn.Name, "PolicyDenied")
	require.Contains(t, event.Note, "NetworkPolicy "+vn.Namespace+"/vk-ravenna")
	consumer.Get(t, vn, vn.Namespace, vn.Name)
	mend()
	consumer.AwaitGone(t, vn)
	require.NotEmpty(t, m.Writes.Denied())
	require.True(t, apierrors.IsNotFound(consumer.Client.Get(t.Context(), client.ObjectKeyFromObject(policy), policy)))

	ungranted := virtualNode(t, "ravenna", "ravenna-2")
	left := besides(t, ungranted, ungranted)[2]
	awaitFinalizer(t, ungranted)
	for _, object := range (rbac.Manager{Subject: rbac.User(controllertest.ManagerUser)}).Provider(ungranted.Namespace, left.GetName()) {
		consumer.Delete(t, object)
	}
	config, err := consumer.ConfigFor(controllertest.ManagerUser)
	require.NoError(t, err)
	manager, err := client.New(config, client.Options{Scheme: consumer.Client.Scheme()})
	require.NoError(t, err)
	controllertest.Eventually(t, "the role to be gone", func() error {
		if err := manager.Delete(t.Context(), left, client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Errorf("a deletion ends with %v", err)
		}
		return nil
	})
	consumer.Delete(t, ungranted)
	consumer.AwaitGone(t, ungranted)
	require.Empty(t, m.Writes.About("DELETE", "/secrets/"+left.GetName()), "no role permits to read it")
}

// mapping creates the NamespaceMap of a provider with a remote namespace.
func mapping(t *testing.T, provider, namespace string) *offloading.NamespaceMap {
	t.Helper()
	created := &offloading.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace(provider), Name: provider, Labels: map[string]string{
			wire.RemoteClusterIDLabel: provider, wire.RemoteIDLabel: provider, wire.ReplicationLabel: "true"},
			// The test removes this finalizer when a provider would have deleted its namespaces.
			Finalizers: []string{"example.com/provider"}},
		Spec: offloading.NamespaceMapSpec{DesiredMapping: map[string]string{namespace: namespace + "-rome"}},
	}
	consumer.Create(t, created)
	consumer.PatchStatus(t, created, fmt.Sprintf(`{"status":{"currentMapping":{%q:{"remoteNamespace":%q,"phase":"Accepted"}}}}`, namespace, namespace+"-rome"))
	return created
}

// volume creates a PersistentVolume whose data is on the provider.
func volume(t *testing.T, provider, name string) *corev1.PersistentVolume {
	t.Helper()
	created := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{wire.DestinationLabel: provider}},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "example.com", VolumeHandle: name}},
		},
	}
	consumer.Create(t, created)
	t.Cleanup(func() { release(t, created) })
	return created
}

func release(t *testing.T, volume *corev1.PersistentVolume) {
	t.Helper()
	if consumer.Client.Get(t.Context(), types.NamespacedName{Name: volume.Name}, volume) != nil {
		return
	}
	consumer.Patch(t, volume, `{"metadata":{"finalizers":null}}`)
	_ = consumer.Client.Delete(t.Context(), volume)
}

// TestTheLastVirtualNodeTakesTheNamespacesBack checks that the remote namespaces are removed with the last virtual node
// of a provider, unless they contain data. As long as another virtual node exists, they are kept.
func TestTheLastVirtualNodeTakesTheNamespacesBack(t *testing.T) {
	shop := consumer.Namespace(t)
	first, last := virtualNode(t, "turin", "turin"), virtualNode(t, "turin", "turin-2")
	requested, data := mapping(t, "turin", shop), volume(t, "turin", "data-of-turin")
	consumer.StartManager(t)
	awaitFinalizer(t, first)
	awaitFinalizer(t, last)

	consumer.Delete(t, first)
	consumer.AwaitGone(t, first)
	if consumer.Get(t, requested, requested.Namespace, "turin"); requested.DeletionTimestamp != nil {
		t.Fatal("the NamespaceMap was deleted though another virtual node is there")
	}
	consumer.Delete(t, last)
	awaitCondition(t, last, offloading.NodeConditionType, offloading.DeletingConditionStatus, "DataOnProvider", "data-of-turin")
	consumer.AwaitEvent(t, last.Namespace, "VirtualNode", "turin-2", "DataOnProvider")
	if consumer.Get(t, requested, requested.Namespace, "turin"); requested.DeletionTimestamp != nil {
		t.Fatal("the NamespaceMap was deleted though data lies on the provider")
	}
	release(t, data)
	awaitCondition(t, last, offloading.NodeConditionType, offloading.DeletingConditionStatus, "Removing", "Waiting for cluster turin to delete 1 remote namespace")
	consumer.Get(t, node("turin-2"), "", "turin-2")
	consumer.Patch(t, requested, `{"metadata":{"finalizers":null}}`)
	consumer.AwaitGone(t, requested)
	consumer.AwaitGone(t, node("turin-2"))
	consumer.AwaitGone(t, deployment(last))
	consumer.AwaitGone(t, last)
}

// TestTheLastVirtualNodeTakesConfirmedData checks that the NamespaceMap gets the confirmation and is deleted if the
// deletion of data is confirmed on the last virtual node. Retained volumes always prevent this.
func TestTheLastVirtualNodeTakesConfirmedData(t *testing.T) {
	shop := consumer.Namespace(t)
	last := virtualNode(t, "prato", "prato")
	requested := mapping(t, "prato", shop)
	_, used := consumer.BoundClaim(t, "prato", shop, corev1.PersistentVolumeReclaimDelete)
	_, retained := consumer.BoundClaim(t, "prato", consumer.Namespace(t), corev1.PersistentVolumeReclaimRetain)
	consumer.StartManager(t)
	awaitFinalizer(t, last)

	consumer.Delete(t, last)
	awaitCondition(t, last, offloading.NodeConditionType, offloading.DeletingConditionStatus, remotedata.HeldReason, used.Name)
	consumer.Patch(t, last, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, wire.DeleteDataAnnotation))
	controllertest.Eventually(t, "only the retained volume to hold", func() error {
		consumer.Get(t, last, last.Namespace, last.Name)
		for _, condition := range last.Status.Conditions {
			if condition.Reason == remotedata.HeldReason && !strings.Contains(condition.Message, used.Name) && strings.Contains(condition.Message, retained.Name) {
				return nil
			}
		}
		return fmt.Errorf("conditions are %+v", last.Status.Conditions)
	})
	if consumer.Get(t, requested, requested.Namespace, "prato"); requested.DeletionTimestamp != nil {
		t.Fatal("the NamespaceMap was deleted though a volume is retained")
	}
	consumer.Patch(t, retained, `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`)
	controllertest.Eventually(t, "the NamespaceMap to be deleted, with the confirmation", func() error {
		if consumer.Get(t, requested, requested.Namespace, "prato"); requested.DeletionTimestamp == nil || !remotedata.IsConfirmed(requested) {
			return fmt.Errorf("it is %+v", requested.ObjectMeta)
		}
		return nil
	})
	consumer.Patch(t, requested, `{"metadata":{"finalizers":null}}`)
	consumer.AwaitGone(t, last)
}

// TestAProviderThatIsGivenUp checks that, if a provider is declared dead, the controller waits neither for the end of
// its pods nor for the migration of data. It lists the remaining objects.
func TestAProviderThatIsGivenUp(t *testing.T) {
	shop := consumer.Namespace(t)
	vn := virtualNode(t, "bari", "bari")
	stuck := pod(t, shop, "stuck", "bari")
	budget(t, stuck)
	requested := mapping(t, "bari", shop)
	volume(t, "bari", "data-of-bari")
	consumer.StartManager(t)
	cluster := &core.ForeignCluster{}
	controllertest.Eventually(t, "the ForeignCluster", func() error { return consumer.Client.Get(t.Context(), types.NamespacedName{Name: "bari"}, cluster) })
	awaitFinalizer(t, vn)

	consumer.Delete(t, vn)
	awaitCondition(t, vn, offloading.NodeConditionType, offloading.DrainingConditionStatus, "Draining", "blocked by a PodDisruptionBudget")
	consumer.Patch(t, cluster, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, wire.PermanentlyUnreachableAnnotation))
	controllertest.Eventually(t, "the NamespaceMap to be deleted", func() error {
		if consumer.Get(t, requested, requested.Namespace, "bari"); requested.DeletionTimestamp == nil {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	consumer.Patch(t, requested, `{"metadata":{"finalizers":null}}`) // the replicator would remove the finalizer
	consumer.AwaitGone(t, vn)
	consumer.AwaitGone(t, deployment(vn))
	consumer.AwaitGone(t, node("bari"))
	left := consumer.AwaitEvent(t, "default", "ForeignCluster", "bari", "ProviderGivenUp")
	for _, want := range []string{"1 pod,", shop + "-rome", "data-of-bari"} {
		assert.Contains(t, left.Note, want)
	}
}

// TestDrainOnRequest checks that a drain on request removes the pods of a node. Afterwards, the node can be put back
// into service.
func TestDrainOnRequest(t *testing.T) {
	shop := consumer.Namespace(t)
	vn := virtualNode(t, "genoa", "genoa")
	web := pod(t, shop, "web", "genoa")
	limit := budget(t, web)
	_, byDefault := template(t, "drain")
	manager := consumer.StartManager(t, byDefault, func(o *controllers.Options) { o.VirtualNodes.DrainTimeout = time.Nanosecond })
	consumer.Patch(t, vn, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, wire.DrainAnnotation))
	awaitCondition(t, vn, offloading.NodeConditionType, offloading.DrainingConditionStatus, "DrainTimedOut", "blocked by a PodDisruptionBudget")
	consumer.AwaitEvent(t, vn.Namespace, "VirtualNode", "genoa", "DrainTimedOut")
	for range 2 { // each deletion causes another reconciliation
		before := deployment(vn)
		consumer.Get(t, before, vn.Namespace, "vk-genoa")
		consumer.Delete(t, before)
		awaitDeployment(t, vn, "come back", func(d *appsv1.Deployment) bool { return d.UID != before.UID })
	}
	notes := map[string]bool{} // only some Events are counted, because the check of the cluster may also cause one
	for _, event := range consumer.Events(t, vn.Namespace, "VirtualNode", "genoa") {
		if event.Reason == "DrainTimedOut" {
			notes[event.Note] = true
		}
	}
	if told := manager.Metric(t, "refract_controller_warnings_total", "controller", "virtualnode", "reason", "DrainTimedOut"); told > float64(len(notes)) {
		t.Errorf("%d causes of the stuck drain were reported %v times", len(notes), told)
	}
	consumer.Delete(t, limit)
	awaitEvicted(t, web)
	end(t, web)
	awaitCondition(t, vn, offloading.NodeConditionType, offloading.DrainingConditionStatus, "Drained", "refractctl uncordon virtualnode genoa")
	consumer.Get(t, deployment(vn), vn.Namespace, "vk-genoa")

	consumer.Patch(t, vn, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, wire.DrainAnnotation))
	awaitCondition(t, vn, offloading.NodeConditionType, offloading.RunningConditionStatus, "NodeUncordoned", "")

	consumer.Patch(t, vn, `{"spec":{"createNode":false}}`)
	consumer.AwaitGone(t, node("genoa"))
	awaitCondition(t, vn, offloading.NodeConditionType, offloading.NoneConditionStatus, "NodeRemoved", "")
	consumer.Get(t, deployment(vn), vn.Namespace, "vk-genoa")
}

// TestNodesOfOthersAreLeftAlone checks that a Node that has the name of a VirtualNode but another owner is left
// unchanged.
func TestNodesOfOthersAreLeftAlone(t *testing.T) {
	shop := consumer.Namespace(t)
	vn := virtualNode(t, "pisa", "pisa")
	consumer.Patch(t, node("pisa"), fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, wire.TypeLabel))
	web := pod(t, shop, "web", "pisa")
	consumer.StartManager(t)
	awaitFinalizer(t, vn)
	consumer.Delete(t, vn)
	controllertest.Eventually(t, "the VirtualNode to have gone on", func() error {
		if err := consumer.Client.Get(t.Context(), types.NamespacedName{Namespace: vn.Namespace, Name: "vk-pisa"}, &appsv1.Deployment{}); err == nil {
			return fmt.Errorf("its Deployment is there")
		}
		return nil
	})
	current := node("pisa")
	consumer.Get(t, current, "", "pisa")
	consumer.Get(t, web, shop, "web")
	if current.Spec.Unschedulable || web.DeletionTimestamp != nil {
		t.Error("another owner's node was drained")
	}
}

// TestARestartWritesNothing checks that a VirtualNode that is already in the desired state is not written after a
// restart.
func TestARestartWritesNothing(t *testing.T) {
	vn := virtualNode(t, "siena", "siena")
	first := consumer.StartManager(t)
	awaitFinalizer(t, vn)
	first.Stop(t)
	second := consumer.StartManager(t)
	marker := virtualNode(t, "siena", "siena-2")
	awaitFinalizer(t, marker)
	for _, write := range second.Writes.About("virtualnodes") {
		if strings.HasSuffix(strings.TrimSuffix(write, "/status"), "/siena") {
			t.Errorf("after a restart there was the write %q", write)
		}
	}
}
