// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/doctor"
)

// adoptable is a VirtualNode as Liqo's webhook writes it.
const adoptable = `
apiVersion: offloading.liqo.io/v1beta1
kind: VirtualNode
metadata: {name: adoptable, namespace: liqo-tenant-adoptable, labels: {liqo.io/remote-cluster-id: adoptable}}
spec:
  clusterID: adoptable
  kubeconfigSecretRef: {name: kubeconfig}
  template:
    metadata: {name: vk-adoptable, namespace: liqo-tenant-adoptable}
    spec:
      replicas: 1
      selector: {matchLabels: {liqo.io/virtual-node: adoptable}}
      template:
        metadata: {labels: {liqo.io/virtual-node: adoptable}}
        spec:
          futureField: kept
          containers:
            - {name: virtual-kubelet, image: "liqo/virtual-kubelet:v1", command: [/usr/bin/virtual-kubelet], args: [--nodename=adoptable, --later=1], futureField: kept}
`

// TestAVirtualKubeletThatDoesNotGetReadyIsPutBack checks that adopted virtual nodes are reverted if they do not become
// ready. In a cluster without nodes, no virtual kubelet can run. (Package test/liqo adopts on real nodes, under Liqo's
// own controllers. Package test/join has a stand-in for Liqo's webhook.)
func TestAVirtualKubeletThatDoesNotGetReadyIsPutBack(t *testing.T) {
	c := admin(t)
	vn := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(adoptable), vn))
	namespace := vn.GetNamespace()
	home := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	require.NoError(t, c.Create(t.Context(), home))
	require.NoError(t, c.Create(t.Context(), vn))
	_, _, err := refractctl(t, "liqo", "adopt", "adoptable", "--image=refract/virtual-kubelet:v1", "--kubeconfig="+testCluster.Kubeconfig())
	require.ErrorContains(t, err, "is not in the tenant namespace of cluster adoptable")
	home.Labels = map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: "adoptable"}
	require.NoError(t, c.Update(t.Context(), home))
	account := rbac.ServiceAccount(namespace, vn.GetName())
	for _, object := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "liqo-virtual-kubelet-local"}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch", "delete", "patch", "update"}}}},
		&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "liqo-node-adoptable"}, Subjects: []rbacv1.Subject{account},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqo-virtual-kubelet-local"}},
	} {
		require.NoError(t, c.Create(t.Context(), object))
	}
	t.Cleanup(func() {
		assert.NoError(t, client.IgnoreNotFound(c.Delete(context.Background(), vn)))
		assert.NoError(t, client.IgnoreNotFound(c.Delete(context.Background(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vk-adoptable"}})))
	})
	before := vn.Object["spec"]

	lacking := func() {
		t.Helper()
		found, _, err := refractctl(t, "liqo", "check", "adoptable", "--kubeconfig="+testCluster.Kubeconfig())
		require.NoError(t, err)
		assert.Contains(t, found, "it runs liqo/virtual-kubelet:v1")
		assert.Contains(t, found, "create tokenreviews")
		assert.NotContains(t, found, "watch pods")
	}
	lacking()
	go follow(t.Context(), c, namespace)
	_, said, err := refractctl(t, "liqo", "adopt", "adoptable", "--image=refract/virtual-kubelet:v1", "--timeout=3s", "--kubeconfig="+testCluster.Kubeconfig())
	require.ErrorContains(t, err, "0 of 1 replicas are up to date and available")
	assert.Contains(t, said, "adoptable: replacing liqo/virtual-kubelet:v1 with refract/virtual-kubelet:v1")
	assert.Contains(t, said, "adoptable: putting it back")
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(vn), vn))
	assert.Equal(t, before, vn.Object["spec"])
	assert.Empty(t, vn.GetAnnotations()[wire.FormerImageAnnotation])
	lacking()
	err = c.Get(t.Context(), client.ObjectKey{Name: "refract-adopted-virtual-kubelet-local"}, &rbacv1.ClusterRole{})
	assert.True(t, apierrors.IsNotFound(err), "%v", err)

	// Other tests check the exit codes of some of these failures, and a VirtualNode that Liqo has not created.
	out, _, err := refractctl(t, "liqo", "adopt", "adoptable", "--image=refract/virtual-kubelet:v1", "--timeout=1s", "-o", "json", "--kubeconfig="+testCluster.Kubeconfig())
	require.Error(t, err)
	failed := printedResult(t, out)
	assert.Equal(t, "liqo adopt", failed.Command)
	assert.Equal(t, invocation.ExitTimedOut, failed.ExitCode)
	assert.Equal(t, err.Error(), failed.Error)
	assert.Empty(t, failed.Objects)
	assert.Contains(t, strings.Join(failed.Steps, "\n"), "adoptable: putting it back")
	out, _, err = refractctl(t, "liqo", "revert", "adoptable", "-o", "yaml", "--kubeconfig="+testCluster.Kubeconfig())
	require.NoError(t, err)
	assert.Empty(t, printedResult(t, out).Objects, "nothing is adopted")
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(vn), vn))
	unstructured.RemoveNestedField(vn.Object, "spec", "template")
	require.NoError(t, c.Update(t.Context(), vn))
	out, _, err = refractctl(t, "liqo", "check", "adoptable", "-o", "json", "--kubeconfig="+testCluster.Kubeconfig())
	assert.Equal(t, invocation.ExitFindings, invocation.ExitCode(err), "%v", err)
	found := struct{ Findings []doctor.Finding }{}
	require.NoError(t, yaml.Unmarshal([]byte(out), &found), "%s", out)
	require.Len(t, found.Findings, 1)
	assert.Equal(t, doctor.Error, found.Findings[0].Level)
	assert.Contains(t, found.Findings[0].Message, "nothing to adopt")
	_, _, err = refractctl(t, "liqo", "adopt", "adoptable", "--image=refract/virtual-kubelet:v1", "--kubeconfig="+testCluster.Kubeconfig())
	assert.ErrorContains(t, err, "was it created by Liqo?")

	for want, args := range map[string][]string{
		"--image is missing": {"adopt", "adoptable"}, "there is no virtual node nowhere": {"check", "nowhere"}, "--timeout": {"revert", "--timeout=-1s"},
	} {
		_, _, err := refractctl(t, append([]string{"liqo", "--kubeconfig=" + testCluster.Kubeconfig()}, args...)...)
		assert.ErrorContains(t, err, want)
	}
}

// follow keeps the Deployment of a virtual kubelet in sync with its VirtualNode, until ctx ends.
func follow(ctx context.Context, c client.Client, namespace string) {
	_ = wait.PollUntilContextCancel(ctx, tick, true, func(ctx context.Context) (bool, error) {
		vn := &offloading.VirtualNode{}
		if c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "adoptable"}, vn) != nil || vn.Spec.Template == nil {
			return false, nil
		}
		made := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "vk-adoptable"}}
		if c.Get(ctx, client.ObjectKeyFromObject(made), made) != nil {
			made.Spec = vn.Spec.Template.Spec
			_ = c.Create(ctx, made)
			return false, nil
		}
		made.Spec.Template.Spec.Containers[0].Image = vn.Spec.Template.Spec.Template.Spec.Containers[0].Image
		_ = c.Update(ctx, made)
		return false, nil
	})
}
