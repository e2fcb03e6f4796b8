// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/test/support/testenv"
)

// access returns the access to a test cluster.
func access(t *testing.T, api *testenv.Cluster) *cluster.Cluster {
	t.Helper()
	scheme, err := controllers.Scheme()
	require.NoError(t, err)
	c, err := client.New(api.Config(), client.Options{Scheme: scheme})
	require.NoError(t, err)
	return &cluster.Cluster{Name: api.Name(), Config: api.Config(), Client: c, Clientset: kubernetes.NewForConfigOrDie(api.Config())}
}

// absent returns a cluster that cannot be accessed.
func absent(t *testing.T, id string) *cluster.Side {
	t.Helper()
	c, err := cluster.Absent(id)
	require.NoError(t, err)
	side, err := c.Inspect(t.Context())
	require.NoError(t, err)
	return side
}

// installed creates the Deployment by which an installation is recognized.
func installed(t *testing.T, c *cluster.Cluster, id string) {
	t.Helper()
	labels := map[string]string{"app.kubernetes.io/component": "controller-manager", "app.kubernetes.io/name": "controller-manager", "app.kubernetes.io/instance": "refract", "helm.sh/chart": "refract-0.2.0"}
	require.NoError(t, c.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}}))
	require.NoError(t, c.Client.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "refract-controller-manager", Labels: labels},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "controller-manager", Image: "i", Args: []string{"--cluster-id=" + id, "--remote-cluster-role=liqo-virtual-kubelet-remote"}}}}}},
	}))
}

// TestConsumersAreDrainedAndActivated checks that a drained consumer has no bindings and no NamespaceMap, that
// refractctl peer refuses to admit it, and that its Quota is kept. Activate must admit it again with the same bindings.
// If the consumer has access through other bindings, the error must name them.
func TestConsumersAreDrainedAndActivated(t *testing.T) {
	milan := access(t, testenv.ForTest(t, testenv.Options{CRDPaths: []string{"../../../api/crds"}, NoScheduler: true})[0])
	installed(t, milan, "milan")
	report := func(line string) { t.Log(line) }
	drain := func() error { return Drain(t.Context(), milan, "rome", false, report) }
	require.ErrorContains(t, drain(), "there is no peering with rome")
	side, err := milan.Inspect(t.Context())
	require.NoError(t, err)
	rome := Tenant{Provider: side, Consumer: "rome"}
	writer := cluster.NewWriter(side)
	require.NoError(t, writer.CreateTenant(t.Context(), absent(t, "rome")))
	require.NoError(t, writer.Apply(t.Context(), append(rome.Access(), rome.Quota(corev1.ResourceList{}))...))
	tenant := wire.TenantNamespace("rome")
	bound := func() (names []string) {
		bindings, err := rome.FindAccess(t.Context(), nil)
		require.NoError(t, err)
		for _, binding := range bindings {
			names = append(names, cluster.Describe(binding))
		}
		return names
	}
	before := bound()
	require.NotEmpty(t, before)
	mapping := func() *offloading.NamespaceMap {
		return &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "milan", Labels: map[string]string{wire.ReplicatedLabel: "true"}}}
	}
	require.NoError(t, milan.Client.Create(t.Context(), mapping()))
	namespace := func() *corev1.Namespace {
		found := &corev1.Namespace{}
		require.NoError(t, milan.Client.Get(t.Context(), client.ObjectKey{Name: tenant}, found))
		return found
	}

	require.NoError(t, Activate(t.Context(), milan, "rome"), "nothing was drained")
	for range 2 { // in the second iteration, there is nothing left to remove
		require.NoError(t, drain())
		assert.Empty(t, bound())
		assert.Error(t, milan.Client.Get(t.Context(), client.ObjectKeyFromObject(mapping()), mapping()))
		assert.True(t, IsDrained(namespace()))
	}
	require.NoError(t, milan.Client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: "rome"}, &offloading.Quota{}))
	require.NoError(t, milan.Client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: wire.ConsumerServiceAccount}, &corev1.ServiceAccount{}))
	require.ErrorContains(t, rome.RequireActive(t.Context()), "consumer rome was drained: run refractctl activate tenant rome")

	require.NoError(t, Activate(t.Context(), milan, "rome"))
	assert.ElementsMatch(t, before, bound())
	assert.False(t, IsDrained(namespace()))
	require.NoError(t, rome.RequireActive(t.Context()))
	// The recorded condition of a deleted Tenant has the same effect.
	for _, condition := range []auth.TenantCondition{auth.TenantDrained, auth.TenantCordoned} {
		require.NoError(t, milan.Annotate(t.Context(), namespace(), wire.TenantConditionAnnotation, string(condition)+"/1"))
		assert.Equal(t, condition == auth.TenantDrained, rome.RequireActive(t.Context()) != nil)
	}

	require.NoError(t, milan.Client.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "by-hand"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}, Subjects: []rbacv1.Subject{rbac.Group("rome")}}))
	require.ErrorContains(t, drain(), "rome still has access, by RoleBinding "+tenant+"/by-hand")
}

// TestAConsumerWithATenantIsDrainedByTheControllers checks that Drain does not remove the bindings of a consumer with a
// Tenant itself, and returns when the controllers have removed their subjects. (The controllers are tested in
// controllers/tenantaccess.) The consumer must not be admitted while its Tenant is drained.
func TestAConsumerWithATenantIsDrainedByTheControllers(t *testing.T) {
	milan := access(t, testenv.ForTest(t, testenv.Options{CRDPaths: []string{"../../../api/crds"}, NoScheduler: true})[0])
	installed(t, milan, "milan")
	report := func(line string) { t.Log(line) }
	drain := func() error { return Drain(t.Context(), milan, "rome", false, report) }
	side, err := milan.Inspect(t.Context())
	require.NoError(t, err)
	rome := Tenant{Provider: side, Consumer: "rome"}
	writer := cluster.NewWriter(side)
	require.NoError(t, writer.CreateTenant(t.Context(), absent(t, "rome")))
	require.NoError(t, writer.Apply(t.Context(), append(rome.Access(), rome.Quota(corev1.ResourceList{}))...))
	tenant := &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace("rome"), Name: "rome", Labels: map[string]string{wire.AdmittedByLabel: wire.AdmittedByRefractctl}},
		Spec: auth.TenantSpec{ClusterID: "rome", TenantCondition: auth.TenantActive}}
	require.NoError(t, milan.Client.Create(t.Context(), tenant))
	require.NoError(t, rome.RequireActive(t.Context()))
	tenant.Spec.TenantCondition = auth.TenantDrained
	require.NoError(t, milan.Client.Update(t.Context(), tenant))
	require.ErrorContains(t, rome.RequireActive(t.Context()), "consumer rome was drained: run refractctl activate tenant rome")

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	require.ErrorContains(t, Drain(ctx, milan, "rome", false, report), "waiting for the controller manager to revoke RoleBinding "+tenant.Namespace+"/")
	binding := &rbacv1.RoleBinding{}
	require.NoError(t, milan.Client.Get(t.Context(), client.ObjectKeyFromObject(rbac.Peer("", "rome").TenantNamespace(tenant.Namespace)), binding))
	binding.Subjects = nil
	require.NoError(t, milan.Client.Update(t.Context(), binding))
	left := &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Namespace, Name: "milan", Labels: map[string]string{wire.ReplicatedLabel: "true"}}}
	require.NoError(t, milan.Client.Create(t.Context(), left), "the controllers have ended before they deleted it")
	require.NoError(t, drain())
	require.NoError(t, milan.Client.Get(t.Context(), client.ObjectKeyFromObject(binding), binding))
	require.Error(t, milan.Client.Get(t.Context(), client.ObjectKeyFromObject(left), left))

	require.NoError(t, cluster.NewRemover(side, false).Remove(t.Context(), binding))

	for _, condition := range []auth.TenantCondition{auth.TenantDrained, auth.TenantActive} {
		tenant.Spec.TenantCondition = condition
		require.NoError(t, milan.Client.Update(t.Context(), tenant))
		require.NoError(t, writer.Apply(t.Context(), rome.Access()...))
		mapping := &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Namespace, Name: "milan", Labels: map[string]string{wire.ReplicatedLabel: "true"}}}
		require.NoError(t, milan.Client.Create(t.Context(), mapping))
		require.NoError(t, drain(), condition)
		left, err := rome.FindAccess(t.Context(), nil)
		require.NoError(t, err)
		assert.Empty(t, left, condition)
		require.Error(t, milan.Client.Get(t.Context(), client.ObjectKeyFromObject(mapping), mapping))
		namespace := &corev1.Namespace{}
		require.NoError(t, milan.Client.Get(t.Context(), client.ObjectKey{Name: tenant.Namespace}, namespace))
		assert.True(t, IsDrained(namespace), condition)
		require.NoError(t, Activate(t.Context(), milan, "rome"))
	}
}
