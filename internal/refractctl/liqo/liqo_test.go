// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package liqo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

var cluster *testenv.Cluster

func TestMain(m *testing.M) {
	os.Exit(testenv.Main(m, &cluster, testenv.Options{CRDPaths: []string{"../../../api/crds"}, NoScheduler: true}))
}

const (
	liqoV1, liqoV2       = "liqo/virtual-kubelet:v1", "liqo/virtual-kubelet:v2"
	refractV1, refractV2 = "refract/virtual-kubelet:v1", "refract/virtual-kubelet:v2"
	tenant               = "liqo-tenant-milan"
)

// world is a cluster that runs Liqo. The provider of all its virtual nodes is milan.
type world struct {
	*testing.T
	client.WithWatch
	clientset kubernetes.Interface
	template  *offloading.VkOptionsTemplate
}

// begin creates the objects of a Liqo installation. At the end of the test, it removes them, together with all virtual
// nodes and their permissions.
func begin(t *testing.T) *world {
	t.Helper()
	scheme, err := controllers.Scheme()
	require.NoError(t, err)
	c, err := client.NewWithWatch(cluster.Config(), client.Options{Scheme: scheme})
	require.NoError(t, err)
	w := &world{T: t, clientset: kubernetes.NewForConfigOrDie(cluster.Config())}
	w.WithWatch = interceptor.NewClient(c, interceptor.Funcs{Patch: w.patch})
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant, Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: "milan"}}}
	require.NoError(t, client.IgnoreAlreadyExists(w.Create(t.Context(), namespace)))
	w.template = w.vkOptionsTemplate(defaultTemplate, liqoV1)
	t.Cleanup(func() {
		for _, kind := range []client.Object{&offloading.VirtualNode{}, &offloading.VkOptionsTemplate{}, &appsv1.Deployment{}} {
			for _, namespace := range []string{tenant, metav1.NamespaceDefault} {
				assert.NoError(t, w.DeleteAllOf(context.Background(), kind, client.InNamespace(namespace)))
			}
		}
		assert.NoError(t, w.DeleteAllOf(context.Background(), &corev1.Node{}))
		for object := range w.granted(context.Background()) {
			assert.NoError(t, w.Delete(context.Background(), object))
		}
	})
	return w
}

// patch intercepts patches of VirtualNodes, and updates the Deployments of their virtual kubelets as Liqo's controller
// would. The Deployments have no replicas, because there is no node that could run them.
func (w *world) patch(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	err := c.Patch(ctx, object, patch, options...)
	if err != nil || object.GetObjectKind().GroupVersionKind().Kind != offloading.VirtualNodeKind {
		return err
	}
	vn, deployment := &offloading.VirtualNode{}, &appsv1.Deployment{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(object), vn); err != nil {
		return err
	}
	if err := c.Get(ctx, client.ObjectKey{Namespace: vn.Namespace, Name: "vk-" + vn.Name}, deployment); err != nil {
		return client.IgnoreNotFound(err)
	}
	before := deployment.DeepCopy()
	deployment.Spec.Template = vn.Spec.Template.Spec.Template
	return c.Patch(ctx, deployment, client.MergeFrom(before))
}

func (w *world) vkOptionsTemplate(name, image string) *offloading.VkOptionsTemplate {
	w.Helper()
	template := &offloading.VkOptionsTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: offloading.VkOptionsTemplateSpec{ContainerImage: image, ExtraArgs: []string{"--later=1"}}}
	require.NoError(w, w.Create(w.Context(), template))
	return template
}

// virtualNode creates a virtual node from a VkOptionsTemplate, as Liqo would.
func (w *world) virtualNode(name string, of *offloading.VkOptionsTemplate) *offloading.VirtualNode {
	w.Helper()
	require.NoError(w, w.Get(w.Context(), client.ObjectKeyFromObject(of), of))
	return w.virtualNodeOf(name, of)
}

// virtualNodeOf is like virtualNode, but does not change the template.
func (w *world) virtualNodeOf(name string, of *offloading.VkOptionsTemplate) *offloading.VirtualNode {
	w.Helper()
	labels := map[string]string{wire.VirtualNodeLabel: name}
	vn := &offloading.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: name}, Spec: offloading.VirtualNodeSpec{
		ClusterID: "milan", CreateNode: ptr.To(false), KubeconfigSecretRef: &corev1.LocalObjectReference{Name: "kubeconfig"},
		Template: &offloading.DeploymentTemplate{Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{
				{Name: containerName, Image: of.Spec.ContainerImage, Args: slices.Concat([]string{"--nodename=" + name}, of.Spec.ExtraArgs)},
			}}},
		}},
	}}
	if of != w.template {
		vn.Spec.VkOptionsTemplateRef = &corev1.ObjectReference{Namespace: of.Namespace, Name: of.Name}
	}
	require.NoError(w, w.Create(w.Context(), vn))
	require.NoError(w, w.Create(w.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "vk-" + name}, Spec: vn.Spec.Template.Spec}))
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	require.NoError(w, w.Create(w.Context(), node))
	created := node.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
	require.NoError(w, w.Status().Patch(w.Context(), node, client.MergeFrom(created)))
	return vn
}

func (w *world) options(image string, nodes ...string) *Options {
	return &Options{Client: w, Clientset: w.clientset, Nodes: nodes, Image: image, Progress: func(line string) { w.Log(line) }}
}

// runs checks the image of a virtual node and the recorded former image. Only an adopted node may ignore unknown flags.
func (w *world) runs(vn *offloading.VirtualNode, image, former string) {
	w.Helper()
	require.NoError(w, w.Get(w.Context(), client.ObjectKeyFromObject(vn), vn))
	assert.Equal(w, image, imageOf(vn), vn.Name)
	assert.Equal(w, former, vn.Annotations[wire.FormerImageAnnotation], vn.Name)
	args := []string{"--nodename=" + vn.Name, "--later=1"}
	if former != "" {
		args = append(args, ignoreUnknown)
	}
	assert.Equal(w, args, vn.Spec.Template.Spec.Template.Spec.Containers[0].Args, vn.Name)
}

// granted returns the RBAC objects in the cluster whose names begin with the name of the project, with a description:
// kind, name and version.
func (w *world) granted(ctx context.Context) map[client.Object]string {
	w.Helper()
	granted := map[client.Object]string{}
	add := func(object client.Object) {
		if strings.HasPrefix(object.GetName(), "refract-") {
			granted[object] = fmt.Sprintf("%T %s/%s %s", object, object.GetNamespace(), object.GetName(), object.GetResourceVersion())
		}
	}
	clusterRoles, clusterRoleBindings, roles, roleBindings := &rbacv1.ClusterRoleList{}, &rbacv1.ClusterRoleBindingList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}
	for _, list := range []client.ObjectList{clusterRoles, clusterRoleBindings, roles, roleBindings} {
		require.NoError(w, w.List(ctx, list))
	}
	for i := range clusterRoles.Items {
		add(&clusterRoles.Items[i])
	}
	for i := range clusterRoleBindings.Items {
		add(&clusterRoleBindings.Items[i])
	}
	for i := range roles.Items {
		add(&roles.Items[i])
	}
	for i := range roleBindings.Items {
		add(&roleBindings.Items[i])
	}
	return granted
}

// inventory returns the sorted descriptions of the granted objects.
func (w *world) inventory() []string {
	w.Helper()
	var lines []string
	for _, line := range w.granted(w.Context()) {
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func (w *world) hasClusterRole(name string) bool {
	w.Helper()
	err := w.Get(w.Context(), client.ObjectKey{Name: name}, &rbacv1.ClusterRole{})
	require.NoError(w, client.IgnoreNotFound(err))
	return err == nil
}

// installed creates objects with the labels of a Helm release.
func (w *world) installed(objects ...rbac.Object) {
	w.Helper()
	for _, object := range objects {
		object.SetLabels(map[string]string{managedByLabel: "Helm"})
	}
	require.NoError(w, rbac.Install(w.Context(), w.clientset, objects...))
}

// TestRolesOfAnInstallationAreLeftAsTheyAre checks that the roles of an installation of Refract that was installed
// beside Liqo with adoptLiqo are not changed. These roles have the prefix refract.
func TestRolesOfAnInstallationAreLeftAsTheyAre(t *testing.T) {
	w := begin(t)
	chart := rbac.Kubelet{Prefix: "refract", NodeName: "turin", TenantNamespace: tenant, KubeconfigSecret: "kubeconfig", Subject: rbac.ServiceAccount(tenant, "turin")}
	w.installed(chart.Objects()...)
	before := w.inventory()
	w.virtualNode("milan", w.template)
	w.virtualNode("local", w.template)

	refusal := errors.New("a policy forbids it")
	o := w.options(refractV1)
	o.Client = interceptor.NewClient(w.WithWatch, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return refusal
		},
	})
	require.ErrorIs(t, o.Adopt(t.Context()), refusal)
	assert.Equal(t, before, w.inventory(), "after a failure")

	require.NoError(t, w.options(refractV1).Adopt(t.Context()))
	assert.Subset(t, w.inventory(), before, "after adopting")
	require.NoError(t, w.options("", "local").Revert(t.Context()))
	assert.True(t, w.hasClusterRole("refract-adopted-virtual-kubelet-local"), "milan is still adopted")
	require.NoError(t, w.options("").Revert(t.Context()))
	assert.Equal(t, before, w.inventory(), "after reverting")
}

// TestRightsOfEarlierVersionsAreRevoked checks that permissions from earlier versions are revoked, too. Earlier
// versions granted permissions under the prefix of an installation, and overwrote its roles.
func TestRightsOfEarlierVersionsAreRevoked(t *testing.T) {
	w := begin(t)
	vn := w.virtualNode("milan", w.template)
	adopt := func() {
		require.NoError(t, rbac.Install(t.Context(), w.clientset, kubeletRights(vn, formerRolePrefix)...))
		require.NoError(t, w.options(refractV1).replaceImage(t.Context(), vn, refractV1))
	}
	adopt()
	chart := rbac.Kubelet{Prefix: formerRolePrefix, NodeName: "turin", TenantNamespace: tenant, Subject: rbac.ServiceAccount(tenant, "turin")}
	offloaded := chart.ExtendedNamespace(metav1.NamespaceDefault)
	everywhere := chart.Objects()[slices.IndexFunc(chart.Objects(), func(o rbac.Object) bool { return o.GetName() == "refract-node-turin" })]
	w.installed(offloaded, everywhere)
	require.NoError(t, w.options("").Revert(t.Context()))
	assert.True(t, w.hasClusterRole("refract-virtual-kubelet-local"), "turin needs it")
	assert.True(t, w.hasClusterRole("refract-virtual-kubelet-extended"), "turin needs it in an offloaded namespace")
	assert.Len(t, w.inventory(), 4, "two roles, and their bindings")

	adopt()
	for _, object := range []client.Object{offloaded, everywhere} {
		require.NoError(t, w.Delete(t.Context(), object))
	}
	require.NoError(t, w.options("").Revert(t.Context()))
	assert.Empty(t, w.inventory())
}

// TestVirtualNodesThatAreCreatedLater checks that virtual nodes that are created after all others were adopted get the
// image from the VkOptionsTemplate, but no permissions.
func TestVirtualNodesThatAreCreatedLater(t *testing.T) {
	w := begin(t)
	custom := w.vkOptionsTemplate("custom", liqoV2)
	first := w.virtualNode("first", w.template)
	require.NoError(t, w.options(refractV1).Adopt(t.Context()))
	w.runs(first, refractV1, liqoV1)

	second, third := w.virtualNode("second", w.template), w.virtualNode("third", custom)
	assert.Equal(t, refractV1, imageOf(second))
	checked := func(vn *offloading.VirtualNode) string {
		found, err := w.options("", vn.Name).Check(t.Context())
		require.NoError(t, err)
		return fmt.Sprint(found)
	}
	assert.Contains(t, checked(second), "it was created after refractctl liqo adopt: it runs "+refractV1+", instead of "+liqoV1)
	assert.Regexp(t, "its ServiceAccount may not .*: run refractctl liqo adopt again", checked(second))

	require.NoError(t, w.options(refractV1, "second").Adopt(t.Context()), "with the same image")
	w.runs(second, refractV1, liqoV1)
	testenv.Eventually(t, func() error {
		if found := checked(second); strings.Contains(found, "may not") {
			return fmt.Errorf("%s", found)
		}
		return nil
	})
	require.NoError(t, w.options(refractV2).Adopt(t.Context()), "with another image")
	for vn, former := range map[*offloading.VirtualNode]string{first: liqoV1, second: liqoV1, third: liqoV2} {
		w.runs(vn, refractV2, former)
	}
	// This virtual node has the state of a node that was created while the VkOptionsTemplate had the other image.
	w.template.Spec.ContainerImage = refractV1
	between := w.virtualNodeOf("between", w.template)
	require.NoError(t, w.options(refractV2, "between").Adopt(t.Context()))
	w.runs(between, refractV2, liqoV1)

	fourth, fifth := w.virtualNode("fourth", w.template), w.virtualNode("fifth", custom)
	require.NoError(t, w.options("", "fourth").Revert(t.Context()))
	w.runs(fourth, liqoV1, "")
	require.NoError(t, w.options("").Revert(t.Context()))
	for vn, image := range map[*offloading.VirtualNode]string{first: liqoV1, second: liqoV1, third: liqoV2, between: liqoV1, fourth: liqoV1, fifth: liqoV2} {
		w.runs(vn, image, "")
	}
	assert.Empty(t, w.inventory())
	for template, image := range map[*offloading.VkOptionsTemplate]string{w.template: liqoV1, custom: liqoV2} {
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(template), template))
		assert.Equal(t, image, template.Spec.ContainerImage)
		assert.Equal(t, []string{"--later=1"}, template.Spec.ExtraArgs)
		assert.Empty(t, template.Annotations)
	}
}

// TestAnInterruptedRevertGoesOn checks that the former image of each virtual node is still recorded if a revert is
// interrupted after the VkOptionsTemplates were restored.
func TestAnInterruptedRevertGoesOn(t *testing.T) {
	w := begin(t)
	require.NoError(t, w.options(refractV1).Adopt(t.Context()))
	later := w.virtualNode("later", w.template)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	o := w.options("")
	o.Client = interceptor.NewClient(w.WithWatch, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			err := c.Patch(ctx, object, patch, options...)
			if _, restored := object.(*offloading.VkOptionsTemplate); restored {
				interrupt()
			}
			return err
		},
	})
	require.ErrorIs(t, o.Revert(ctx), context.Canceled)
	w.runs(later, refractV1, liqoV1)
	require.NoError(t, w.options("").Revert(t.Context()))
	w.runs(later, liqoV1, "")
}

// TestAnUpgradeOfLiqo checks the effect of an upgrade of Liqo, which changes the image of the VkOptionsTemplate and may
// or may not keep the arguments. In both cases, Adopt must record the new image for virtual nodes that are created
// later, and Revert must restore this image in all virtual nodes.
func TestAnUpgradeOfLiqo(t *testing.T) {
	for name, arguments := range map[string][]string{"with Liqo's arguments": {"--later=1"}, "with ours": {"--later=1", ignoreUnknown}} {
		t.Run(name, func(t *testing.T) {
			w := begin(t)
			require.NoError(t, w.options(refractV1).Adopt(t.Context()))
			old := w.virtualNode("old", w.template)
			w.template.Spec.ContainerImage, w.template.Spec.ExtraArgs = liqoV2, arguments
			require.NoError(t, w.Update(t.Context(), w.template))
			vn := w.virtualNode("milan", w.template)
			require.NoError(t, w.options(refractV1).Adopt(t.Context()))
			w.runs(vn, refractV1, liqoV2)
			require.NoError(t, w.options("").Revert(t.Context()))
			w.runs(old, liqoV2, "")
			w.runs(vn, liqoV2, "")
			require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(w.template), w.template))
			assert.Equal(t, liqoV2, w.template.Spec.ContainerImage)
			assert.NotContains(t, w.template.Spec.ExtraArgs, ignoreUnknown)
			assert.Empty(t, w.template.Annotations)
		})
	}
}

// TestARevertAfterAnUpgradeOfLiqo checks that a revert after an upgrade of Liqo keeps the image of the upgrade.
func TestARevertAfterAnUpgradeOfLiqo(t *testing.T) {
	w := begin(t)
	require.NoError(t, w.options(refractV1).Adopt(t.Context()))
	old := w.virtualNode("old", w.template)
	w.template.Spec.ContainerImage = liqoV2
	require.NoError(t, w.Update(t.Context(), w.template))
	vn := w.virtualNode("milan", w.template)
	require.NoError(t, w.options("").Revert(t.Context()))
	w.runs(old, liqoV2, "")
	w.runs(vn, liqoV2, "")
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(w.template), w.template))
	assert.Equal(t, liqoV2, w.template.Spec.ContainerImage)
}

// TestTheImageToPutBackIsKnown checks that a virtual node is not adopted if its former image is not recorded in a
// VkOptionsTemplate, because this could not be reverted.
func TestTheImageToPutBackIsKnown(t *testing.T) {
	w := begin(t)
	vn := w.virtualNode("milan", w.vkOptionsTemplate("of-the-user", refractV1))
	const remedy = "set its annotation " + wire.FormerImageAnnotation + " to that of Liqo's virtual kubelet"
	require.ErrorContains(t, w.options(refractV1).Adopt(t.Context()), remedy)
	w.runs(vn, refractV1, "")

	// This virtual node has the state of a node that was created while the VkOptionsTemplate was adopted.
	w.template.Spec = offloading.VkOptionsTemplateSpec{ContainerImage: refractV1, ExtraArgs: []string{"--later=1", ignoreUnknown}}
	later := w.virtualNodeOf("later", w.template)
	require.ErrorContains(t, w.options(refractV2, "later").Adopt(t.Context()), remedy)
	assert.Empty(t, w.inventory())
	metav1.SetMetaDataAnnotation(&later.ObjectMeta, wire.FormerImageAnnotation, liqoV1)
	require.NoError(t, w.Update(t.Context(), later))
	require.NoError(t, w.options("", "later").Revert(t.Context()))
	w.runs(later, liqoV1, "")
}
