// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package virtualnode_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
)

// template creates a VkOptionsTemplate with the given name. The returned function makes it the default template of a
// manager.
func template(t *testing.T, name string) (*offloading.VkOptionsTemplate, func(*controllers.Options)) {
	t.Helper()
	created := &offloading.VkOptionsTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: offloading.VkOptionsTemplateSpec{
			CreateNode: true, ContainerImage: "registry.example/vk:1", ExtraAnnotations: map[string]string{"a": "1", "b": "2"}, LabelsNotReflected: []string{"internal"},
		},
	}
	consumer.Create(t, created)
	return created, func(o *controllers.Options) { o.VirtualNodes.DefaultTemplate = client.ObjectKeyFromObject(created) }
}

// accountLabel marks VirtualNodes that are created without a ServiceAccount.
const accountLabel = "test.example.com/without-account"

func withoutAccount(vn *offloading.VirtualNode) { vn.Labels[accountLabel] = "true" }

// bare creates a VirtualNode without any other objects.
func bare(t *testing.T, provider, name string, change ...func(*offloading.VirtualNode)) *offloading.VirtualNode {
	t.Helper()
	tenant := wire.TenantNamespace(provider)
	if consumer.Client.Get(t.Context(), types.NamespacedName{Name: tenant}, &corev1.Namespace{}) != nil {
		consumer.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant, Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: provider}}})
	}
	vn := &offloading.VirtualNode{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name, Labels: map[string]string{wire.RemoteClusterIDLabel: provider}},
		Spec:       offloading.VirtualNodeSpec{ClusterID: core.ClusterID(provider), KubeconfigSecretRef: &corev1.LocalObjectReference{Name: "kubeconfig"}},
	}
	for _, apply := range change {
		apply(vn)
	}
	consumer.Create(t, vn)
	if vn.Labels[accountLabel] == "" {
		consumer.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}})
	}
	return vn
}

// awaitDeployment waits until the Deployment of the virtual kubelet meets the condition is, and returns it.
func awaitDeployment(t *testing.T, vn *offloading.VirtualNode, what string, is func(*appsv1.Deployment) bool) *appsv1.Deployment {
	t.Helper()
	current := deployment(vn)
	controllertest.Eventually(t, "the Deployment of "+vn.Name+" to have "+what, func() error {
		if err := consumer.Client.Get(t.Context(), client.ObjectKeyFromObject(current), current); err != nil {
			return err
		}
		if !is(current) {
			return fmt.Errorf("it is %+v", current.Spec)
		}
		return nil
	})
	return current
}

func image(of *appsv1.Deployment) string { return of.Spec.Template.Spec.Containers[0].Image }

// kubeletPods waits for the pods of a virtual kubelet.
func kubeletPods(t *testing.T, vn *offloading.VirtualNode) []corev1.Pod {
	t.Helper()
	pods := &corev1.PodList{}
	controllertest.Eventually(t, "the pods of the virtual kubelet of "+vn.Name, func() error {
		if err := consumer.Client.List(t.Context(), pods, client.InNamespace(vn.Namespace), client.MatchingLabels{wire.VirtualNodeLabel: vn.Name}); err != nil || len(pods.Items) == 0 {
			return fmt.Errorf("there are none (%w)", err)
		}
		return nil
	})
	return pods.Items
}

// TestAVirtualKubeletFollowsItsTemplate checks that a virtual kubelet is deployed from its template, follows changes to
// the template, and is restored when it is deleted. Changes that other clients make to its Deployment are kept. A
// condition shows whether it runs.
func TestAVirtualKubeletFollowsItsTemplate(t *testing.T) {
	options, byDefault := template(t, "follows")
	first := consumer.StartManager(t, byDefault)
	vn := bare(t, "lucca", "lucca")
	awaitDeployment(t, vn, "the image", func(d *appsv1.Deployment) bool { return image(d) == "registry.example/vk:1" })
	consumer.AwaitEvent(t, vn.Namespace, "VirtualNode", "lucca", "VkCreated")
	controllertest.Eventually(t, "the effective patch", func() error {
		consumer.Get(t, vn, vn.Namespace, vn.Name)
		if patch := vn.Status.EffectiveOffloadingPatch; patch == nil || !slices.Equal(patch.LabelsNotReflected, []string{"internal"}) {
			return fmt.Errorf("it is %+v", patch)
		}
		return nil
	})

	pod := &kubeletPods(t, vn)[0]
	consumer.PatchStatus(t, pod, `{"status":{"phase":"Pending","containerStatuses":[{"name":"virtual-kubelet","image":"i","imageID":"","ready":false,"restartCount":0,"state":{"waiting":{"reason":"ImagePullBackOff","message":"no such image"}}}]}}`)
	consumer.Patch(t, vn, `{"metadata":{"annotations":{"look":"again"}}}`)
	awaitCondition(t, vn, offloading.VirtualKubeletConditionType, offloading.CreatingConditionStatus, "DeploymentProgressing", "ImagePullBackOff: no such image")
	consumer.PatchStatus(t, pod, `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
	awaitCondition(t, vn, offloading.VirtualKubeletConditionType, offloading.RunningConditionStatus, "DeploymentAvailable", "")

	consumer.Patch(t, options, `{"spec":{"containerImage":"registry.example/vk:2","extraAnnotations":{"b":null}}}`)
	awaitDeployment(t, vn, "the next image", func(d *appsv1.Deployment) bool {
		return image(d) == "registry.example/vk:2" && len(d.Spec.Template.Annotations) == 1 && d.Spec.Template.Annotations["a"] == "1"
	})
	consumer.Patch(t, deployment(vn), `{"metadata":{"annotations":{"theirs":"1"},"labels":{"`+wire.RemoteClusterIDLabel+`":"other"}}}`)
	awaitDeployment(t, vn, "its labels", func(d *appsv1.Deployment) bool {
		return d.Labels[wire.RemoteClusterIDLabel] == "lucca" && d.Annotations["theirs"] == "1"
	})
	consumer.Delete(t, deployment(vn))
	awaitDeployment(t, vn, "come back", func(d *appsv1.Deployment) bool { return d.DeletionTimestamp == nil })

	first.Stop(t)
	second := consumer.StartManager(t, byDefault)
	marker := bare(t, "lucca", "lucca-2")
	awaitDeployment(t, marker, "an image", func(d *appsv1.Deployment) bool { return image(d) != "" })
	for _, write := range second.Writes.About("deployments") {
		if !strings.Contains(write, "lucca-2") && !strings.HasPrefix(write, "POST") {
			t.Errorf("after a restart there was the write %q", write)
		}
	}

	consumer.Delete(t, options)
	awaitCondition(t, vn, offloading.VirtualKubeletConditionType, offloading.NoneConditionStatus, "TemplateNotFound", "VkOptionsTemplate default/follows not found")
	awaitDeployment(t, vn, "stayed", func(d *appsv1.Deployment) bool { return d.DeletionTimestamp == nil })
}

// TestAVirtualKubeletThatAPolicyDenies checks that, if a policy denies the Deployment, this is reported as a denial and
// not as a problem of the template. The Deployment is updated as soon as the policy allows it.
func TestAVirtualKubeletThatAPolicyDenies(t *testing.T) {
	_, byDefault := template(t, "denied")
	namespace := "liqo-tenant-volterra"
	consumer.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: "volterra"}}})
	probe := deployment(&offloading.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "probe"}})
	mend := consumer.Deny(t, "refract-denies-deployments", admissionv1.Create, "apps", "deployments", namespace, func(c client.Client) error {
		probe := probe.DeepCopy()
		probe.Labels = map[string]string{wire.VirtualNodeLabel: "probe"}
		probe.Spec.Selector = &metav1.LabelSelector{MatchLabels: probe.Labels}
		probe.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: probe.Labels}, Spec: corev1.PodSpec{ServiceAccountName: "probe", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		return c.Create(t.Context(), probe, client.DryRunAll)
	})
	manager := consumer.StartManager(t, byDefault)
	vn := &offloading.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "volterra"}, Spec: offloading.VirtualNodeSpec{ClusterID: "volterra"}}
	consumer.Create(t, vn)
	consumer.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: vn.Name}})
	event := consumer.AwaitEvent(t, namespace, "VirtualNode", "volterra", "PolicyDenied")
	assert.Contains(t, event.Note, "ValidatingAdmissionPolicy refract-denies-deployments denied a request")
	mend()
	awaitDeployment(t, vn, "an image", func(d *appsv1.Deployment) bool { return image(d) != "" })
	assert.NotZero(t, manager.Metric(t, "refract_controller_policy_denials_total", "controller", "virtualnode", "policy", "refract-denies-deployments"))
	assert.NotEmpty(t, manager.Writes.Denied())
}

// TestAVirtualKubeletThatCannotBeDeployed checks that the reason is in a condition and an Event if a virtual kubelet
// cannot be deployed. Nothing else is changed.
func TestAVirtualKubeletThatCannotBeDeployed(t *testing.T) {
	_, byDefault := template(t, "cannot")
	consumer.StartManager(t, byDefault)
	missing := bare(t, "parma", "parma-missing", func(vn *offloading.VirtualNode) {
		vn.Spec.VkOptionsTemplateRef = &corev1.ObjectReference{Name: "nowhere"}
	})
	invalid := bare(t, "parma", "parma-invalid", func(vn *offloading.VirtualNode) {
		vn.Spec.Template = &offloading.DeploymentTemplate{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{PriorityClassName: "Not A Name"}}}}
	})
	theirs := map[string]string{"app": "theirs"}
	consumer.Create(t, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: missing.Namespace, Name: "vk-parma-taken"}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: theirs},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: theirs}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "theirs"}}}},
	}})
	taken := bare(t, "parma", "parma-taken")
	reserved := bare(t, "parma", wire.ConsumerServiceAccount)
	byOthers := bare(t, "parma", "parma-others", withoutAccount)

	none := offloading.NoneConditionStatus
	awaitCondition(t, missing, offloading.VirtualKubeletConditionType, none, "TemplateNotFound", "VkOptionsTemplate liqo-tenant-parma/nowhere not found")
	awaitCondition(t, invalid, offloading.VirtualKubeletConditionType, none, "InvalidTemplate", "priorityClassName")
	awaitCondition(t, reserved, offloading.VirtualKubeletConditionType, none, "ReservedName", "metadata.name is reserved")
	awaitCondition(t, byOthers, offloading.VirtualKubeletConditionType, none, "ServiceAccountNotFound", "run refractctl create virtualnode parma-others --provider=parma")
	awaitCondition(t, taken, offloading.VirtualKubeletConditionType, none, "DeploymentConflict", "a different selector")
	for name, reason := range map[string]string{"parma-missing": "TemplateNotFound", "parma-invalid": "InvalidTemplate", "parma-taken": "DeploymentConflict", reserved.Name: "ReservedName", byOthers.Name: "ServiceAccountNotFound"} {
		consumer.AwaitEvent(t, missing.Namespace, "VirtualNode", name, reason)
	}
	if current := awaitDeployment(t, taken, "stayed", func(*appsv1.Deployment) bool { return true }); image(current) != "theirs" {
		t.Errorf("another owner's Deployment runs %s", image(current))
	}
	consumer.Delete(t, taken)
	consumer.AwaitGone(t, taken)
	consumer.Get(t, deployment(taken), taken.Namespace, "vk-parma-taken")
}

// TestAVirtualKubeletGetsItsAccountLater checks that a VirtualNode that liqoctl or a GitOps tool has created gets its
// virtual kubelet as soon as the ServiceAccount exists. The condition contains the reason why there are no pods.
func TestAVirtualKubeletGetsItsAccountLater(t *testing.T) {
	_, byDefault := template(t, "later")
	consumer.StartManager(t, byDefault)
	vn := bare(t, "faenza", "faenza", withoutAccount)
	awaitCondition(t, vn, offloading.VirtualKubeletConditionType, offloading.NoneConditionStatus, "ServiceAccountNotFound", "ServiceAccount liqo-tenant-faenza/faenza does not exist")
	consumer.Create(t, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: vn.Namespace, Name: "no-pods"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}},
	})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: vn.Namespace, Name: vn.Name}}
	consumer.Create(t, account.DeepCopy())
	current := awaitDeployment(t, vn, "created", func(*appsv1.Deployment) bool { return true })
	awaitCondition(t, vn, offloading.VirtualKubeletConditionType, offloading.CreatingConditionStatus, "DeploymentProgressing", "quota: no-pods")

	// The ServiceAccount is deleted while the virtual kubelet has no pods.
	consumer.Delete(t, account.DeepCopy())
	consumer.Patch(t, current, `{"metadata":{"annotations":{"example.com/changed":"true"}}}`)
	awaitCondition(t, vn, offloading.VirtualKubeletConditionType, offloading.NoneConditionStatus, "ServiceAccountNotFound", "run refractctl create virtualnode faenza --provider=faenza")
	consumer.Create(t, account.DeepCopy())
	awaitCondition(t, vn, offloading.VirtualKubeletConditionType, offloading.CreatingConditionStatus, "DeploymentProgressing", "quota: no-pods")
}

// TestDuplicateVirtualNodes checks that, if two VirtualNodes have the same name, the Node belongs to the older one.
// When the newer one is removed, the objects of the node are kept.
func TestDuplicateVirtualNodes(t *testing.T) {
	_, byDefault := template(t, "duplicate")
	older := virtualNode(t, "trento", "same")
	first := consumer.StartManager(t, byDefault)
	awaitFinalizer(t, older)
	first.Stop(t)
	controllertest.Eventually(t, "the next second", func() error {
		if now := metav1.Now(); !older.CreationTimestamp.Before(&metav1.Time{Time: now.Truncate(1e9)}) {
			return fmt.Errorf("it is %s", now)
		}
		return nil
	})
	younger := bare(t, "udine", "same")
	consumer.StartManager(t, byDefault)
	awaitCondition(t, younger, offloading.VirtualKubeletConditionType, offloading.NoneConditionStatus, "DuplicateVirtualNode", "An older VirtualNode of the same name exists in namespace liqo-tenant-trento")
	consumer.Delete(t, younger)
	consumer.AwaitGone(t, younger)
	consumer.Get(t, node("same"), "", "same")
	consumer.Get(t, deployment(older), older.Namespace, "vk-same")
	if len(access(t, "same")) != 10 {
		t.Errorf("of the older one these are left: %q", access(t, "same"))
	}
}

// TestTheNodeGoesBeforeItIsSwitchedOff checks that, if createNode is set to false, the virtual kubelet keeps its node
// until the node is drained.
func TestTheNodeGoesBeforeItIsSwitchedOff(t *testing.T) {
	_, byDefault := template(t, "switched")
	consumer.StartManager(t, byDefault)
	shop := consumer.Namespace(t)
	vn := bare(t, "varese", "varese")
	consumer.Create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "varese", Labels: map[string]string{wire.TypeLabel: wire.VirtualNodeType, wire.RemoteClusterIDLabel: "varese"}}})
	web := pod(t, shop, "web", "varese")
	creates := func(flag string) func(*appsv1.Deployment) bool {
		return func(d *appsv1.Deployment) bool { return slices.Contains(d.Spec.Template.Spec.Containers[0].Args, flag) }
	}
	awaitDeployment(t, vn, "a node", creates("--create-node=true"))
	consumer.Patch(t, vn, `{"spec":{"createNode":false}}`)
	awaitEvicted(t, web)
	awaitCondition(t, vn, offloading.NodeConditionType, offloading.DrainingConditionStatus, "Draining", "1 pod left")
	require.True(t, creates("--create-node=true")(awaitDeployment(t, vn, "stayed", func(*appsv1.Deployment) bool { return true })))
	end(t, web)
	consumer.AwaitGone(t, node("varese"))
	awaitDeployment(t, vn, "no node any more", creates("--create-node=false"))
	assert.NotNil(t, vn)
}
