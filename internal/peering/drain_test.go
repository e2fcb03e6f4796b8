// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package peering

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
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/testenv"
)

// installed creates the Deployment that identifies an installation.
func installed(t *testing.T, c *Cluster, id string) {
	t.Helper()
	labels := map[string]string{"app.kubernetes.io/component": "controller-manager", "app.kubernetes.io/name": "controller-manager", "app.kubernetes.io/instance": "refract", "helm.sh/chart": "refract-0.2.0"}
	require.NoError(t, c.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}}))
	require.NoError(t, c.Client.Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo", Name: "refract-controller-manager", Labels: labels},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "controller-manager", Image: "i", Args: []string{"--cluster-id=" + id, "--remote-cluster-role=liqo-virtual-kubelet-remote"}}}}}},
	}))
}

// A drained consumer has no binding and no NamespaceMap, and refractctl peer refuses to admit it. Its Quota stays.
// Activate admits it again with the same bindings. Access through bindings of others is an error that names the
// bindings.
func TestConsumersAreDrainedAndActivated(t *testing.T) {
	milan := side(t, testenv.ForTest(t, testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true})[0])
	installed(t, milan, "milan")
	rome, err := Absent("rome")
	require.NoError(t, err)
	options := func() *Options {
		return &Options{Consumer: rome, Provider: milan, Progress: func(line string) { t.Log(line) }}
	}
	o := options()
	require.ErrorContains(t, o.Drain(t.Context()), "there is no peering with rome")
	require.NoError(t, milan.makeTenant(t.Context(), rome))
	require.NoError(t, milan.applyAll(t.Context(), append(o.access(), o.quota(corev1.ResourceList{}))))
	tenant := wire.TenantNamespace("rome")
	access := func() (names []string) {
		bindings, err := milan.accessOf(t.Context(), "rome")
		require.NoError(t, err)
		for _, binding := range bindings {
			names = append(names, describe(binding))
		}
		return names
	}
	before := access()
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

	require.NoError(t, options().Activate(t.Context()), "nothing was drained")
	for range 2 { // nothing is left to remove the second time
		require.NoError(t, options().Drain(t.Context()))
		assert.Empty(t, access())
		assert.Error(t, milan.Client.Get(t.Context(), client.ObjectKeyFromObject(mapping()), mapping()))
		assert.True(t, IsDrained(namespace()))
	}
	require.NoError(t, milan.Client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: "rome"}, &offloading.Quota{}))
	require.NoError(t, milan.Client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: wire.ConsumerServiceAccount}, &corev1.ServiceAccount{}))
	require.ErrorContains(t, options().checkDrained(t.Context()), "consumer rome was drained: run refractctl activate tenant rome")

	require.NoError(t, options().Activate(t.Context()))
	assert.ElementsMatch(t, before, access())
	assert.False(t, IsDrained(namespace()))
	require.NoError(t, options().checkDrained(t.Context()))

	require.NoError(t, milan.Client.Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "by-hand"},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}, Subjects: []rbacv1.Subject{rbac.Group("rome")}}))
	require.ErrorContains(t, options().Drain(t.Context()), "rome still has access, by RoleBinding "+tenant+"/by-hand")
}

// The access of a consumer with a Tenant is revoked by the controllers (tested in controllers/tenantaccess). Drain
// removes none of its bindings, and returns when the controllers have emptied them. The consumer cannot be admitted
// again as long as its Tenant is drained.
func TestAConsumerWithATenantIsDrainedByTheControllers(t *testing.T) {
	milan := side(t, testenv.ForTest(t, testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true})[0])
	installed(t, milan, "milan")
	rome, err := Absent("rome")
	require.NoError(t, err)
	options := func() *Options {
		return &Options{Consumer: rome, Provider: milan, Progress: func(line string) { t.Log(line) }}
	}
	o := options()
	require.NoError(t, milan.inspect(t.Context()))
	require.NoError(t, milan.makeTenant(t.Context(), rome))
	require.NoError(t, milan.applyAll(t.Context(), append(o.access(), o.quota(corev1.ResourceList{}))))
	tenant := &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace("rome"), Name: "rome", Labels: map[string]string{wire.AdmittedByLabel: wire.AdmittedByRefractctl}},
		Spec: auth.TenantSpec{ClusterID: "rome", TenantCondition: auth.TenantActive}}
	require.NoError(t, milan.Client.Create(t.Context(), tenant))
	require.NoError(t, options().checkDrained(t.Context()))
	tenant.Spec.TenantCondition = auth.TenantDrained
	require.NoError(t, milan.Client.Update(t.Context(), tenant))
	require.ErrorContains(t, options().checkDrained(t.Context()), "consumer rome was drained: run refractctl activate tenant rome")

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	require.ErrorContains(t, options().Drain(ctx), "waiting for the controller manager to revoke RoleBinding "+tenant.Namespace+"/")
	binding := &rbacv1.RoleBinding{}
	require.NoError(t, milan.Client.Get(t.Context(), client.ObjectKeyFromObject(rbac.Peer("", "rome").TenantNamespace(tenant.Namespace)), binding))
	binding.Subjects = nil
	require.NoError(t, milan.Client.Update(t.Context(), binding))
	left := &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Namespace, Name: "milan", Labels: map[string]string{wire.ReplicatedLabel: "true"}}}
	require.NoError(t, milan.Client.Create(t.Context(), left), "the controllers have ended before they deleted it")
	require.NoError(t, options().Drain(t.Context()))
	require.NoError(t, milan.Client.Get(t.Context(), client.ObjectKeyFromObject(binding), binding))
	require.Error(t, milan.Client.Get(t.Context(), client.ObjectKeyFromObject(left), left))

	shared, err := milan.stillPeered(t.Context(), "rome")
	require.NoError(t, err)
	require.True(t, shared)
	require.NoError(t, milan.remove(t.Context(), binding))
	shared, err = milan.stillPeered(t.Context(), "rome")
	require.NoError(t, err)
	assert.False(t, shared, "the Tenant of a consumer without access is no reason to keep its namespace")

	for _, condition := range []auth.TenantCondition{auth.TenantDrained, auth.TenantActive} {
		tenant.Spec.TenantCondition = condition
		require.NoError(t, milan.Client.Update(t.Context(), tenant))
		require.NoError(t, milan.applyAll(t.Context(), o.access()))
		mapping := &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant.Namespace, Name: "milan", Labels: map[string]string{wire.ReplicatedLabel: "true"}}}
		require.NoError(t, milan.Client.Create(t.Context(), mapping))
		require.NoError(t, options().Drain(t.Context()), condition)
		left, err := milan.accessOf(t.Context(), "rome")
		require.NoError(t, err)
		assert.Empty(t, left, condition)
		require.Error(t, milan.Client.Get(t.Context(), client.ObjectKeyFromObject(mapping), mapping))
		namespace := &corev1.Namespace{}
		require.NoError(t, milan.Client.Get(t.Context(), client.ObjectKey{Name: tenant.Namespace}, namespace))
		assert.True(t, IsDrained(namespace), condition)
		require.NoError(t, options().Activate(t.Context()))
	}
}
