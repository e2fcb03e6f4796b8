// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
)

// patch patches an object, as a controller would.
func patch(t *testing.T, object client.Object, text string) {
	t.Helper()
	require.NoError(t, admin(t).Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(text))))
}

func quotaOf(t *testing.T, consumer, user string) *offloading.Quota {
	t.Helper()
	quota := &offloading.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: wire.TenantNamespace(consumer), Name: user}, Spec: offloading.QuotaSpec{User: user, Resources: corev1.ResourceList{}}}
	create(t, quota)
	return quota
}

func isCordoned(t *testing.T, quota *offloading.Quota) bool {
	t.Helper()
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKeyFromObject(quota), quota))
	return ptr.Deref(quota.Spec.Cordoned, false)
}

// TestConsumersAreCordoned checks that the commands cordon and uncordon the Quota of a consumer that has joined with
// refractctl but, because tenants.objects is false, has no Tenant.
func TestConsumersAreCordoned(t *testing.T) {
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-monza"}})
	quota := quotaOf(t, "monza", "monza")
	_, progress, err := refractctl(t, onCluster("cordon", "tenant", "monza")...)
	require.NoError(t, err)
	assert.Equal(t, "monza: cordoned\n", progress)
	assert.True(t, isCordoned(t, quota))
	_, _, err = refractctl(t, onCluster("drain", "tenant", "monza")...)
	require.ErrorContains(t, err, "found no installation of Refract", "the access is revoked first, which needs the names of its roles")
	_, _, err = refractctl(t, onCluster("uncordon", "tenant", "monza")...)
	require.NoError(t, err)
	assert.False(t, isCordoned(t, quota))
	_, _, err = refractctl(t, onCluster("cordon", "tenant", "lodi")...)
	require.ErrorContains(t, err, "consumer lodi has neither a Tenant nor a Quota of its own in this cluster, which has the consumers ")
	_, _, err = refractctl(t, onCluster("drain", "tenant", "MONZA")...)
	require.ErrorContains(t, err, "monza")
	_, _, err = refractctl(t, onCluster("cordon", "tenant")...)
	assert.Equal(t, invocation.ExitUsage, invocation.ExitCode(err))
}

// TestTheRecordOfADrainIsRemoved checks that refractctl activate tenant removes the record of a drain, which stays if
// the drained Tenant of a consumer is deleted.
func TestTheRecordOfADrainIsRemoved(t *testing.T) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-novara", Annotations: map[string]string{wire.TenantConditionAnnotation: "Drained/1"}}}
	create(t, namespace)
	_, progress, err := refractctl(t, onCluster("activate", "tenant", "novara")...)
	require.NoError(t, err)
	assert.Equal(t, "novara: uncordoned\n", progress)
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace))
	assert.NotContains(t, namespace.Annotations, wire.TenantConditionAnnotation)
	_, _, err = refractctl(t, onCluster("activate", "tenant", "novara")...)
	require.ErrorContains(t, err, "consumer novara has neither a Tenant nor a Quota")
}

// TestACordonWithoutItsResourceSlice checks that refractctl uncordon resourceslice also removes the Quota that stays
// after a cordoned ResourceSlice was deleted.
func TestACordonWithoutItsResourceSlice(t *testing.T) {
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-asti", Labels: map[string]string{wire.RemoteClusterIDLabel: "asti"}}})
	kept := quotaOf(t, "asti", auth.ResourceSliceUser("kept", "asti"))
	_, _, err := refractctl(t, onCluster("uncordon", "resourceslice", "kept")...)
	require.ErrorContains(t, err, "there is no ResourceSlice kept")
	patch(t, kept, `{"metadata":{"annotations":{"`+wire.CordonedSliceAnnotation+`":"of-before"}}}`)
	_, _, err = refractctl(t, onCluster("cordon", "resourceslice", "kept")...)
	require.ErrorContains(t, err, "there is no ResourceSlice kept")
	_, progress, err := refractctl(t, onCluster("uncordon", "resourceslice", "kept")...)
	require.NoError(t, err)
	assert.Equal(t, "kept: uncordoned; there is no ResourceSlice of this name now\n", progress)
	assert.True(t, apierrors.IsNotFound(admin(t).Get(t.Context(), client.ObjectKeyFromObject(kept), kept)))
}

// TestTenantsAreCordonedAndDrained checks that refractctl's commands for Tenants and ResourceSlices change the same
// fields as Liqo's commands, and wait for the controllers. (The controllers are tested in controllers/authentication
// and controllers/resourceslice.)
func TestTenantsAreCordonedAndDrained(t *testing.T) {
	const namespace = "liqo-tenant-pavia"
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	tenant := &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pavia"}, Spec: auth.TenantSpec{ClusterID: "pavia"}}
	create(t, tenant)
	slice := &auth.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "share", Labels: map[string]string{wire.ReplicatedLabel: "true"}},
		Spec: auth.ResourceSliceSpec{ConsumerClusterID: ptr.To(core.ClusterID("pavia")), CSR: []byte("request")}}
	create(t, slice)
	condition := func() auth.TenantCondition {
		require.NoError(t, admin(t).Get(t.Context(), client.ObjectKeyFromObject(tenant), tenant))
		return tenant.Spec.TenantCondition
	}
	const waits = "not done after 3s: waiting for the controller manager of this cluster, which does not answer"
	_, _, err := refractctl(t, onCluster("cordon", "tenant", "pavia", "--timeout=3s")...)
	require.ErrorContains(t, err, "tenant pavia: "+waits)
	assert.Equal(t, auth.TenantCordoned, condition())
	patch(t, slice, `{"metadata":{"annotations":{"`+wire.CordonTenantAnnotation+`":"true"}}}`)
	out, _, err := refractctl(t, onCluster("cordon", "tenant", "pavia", "-o", "json")...)
	require.NoError(t, err)
	assert.Equal(t, []invocation.ResultObject{{Kind: "Tenant", Namespace: namespace, Name: "pavia"}}, printedResult(t, out).Objects)

	_, _, err = refractctl(t, onCluster("uncordon", "resourceslice", "share")...)
	require.ErrorContains(t, err, "ResourceSlice liqo-tenant-pavia/share stays cordoned, because consumer pavia is: run refractctl uncordon tenant pavia")
	_, _, err = refractctl(t, onCluster("uncordon", "tenant", "pavia", "--timeout=3s")...)
	require.ErrorContains(t, err, "tenant pavia: "+waits)
	assert.Equal(t, auth.TenantActive, condition())
	patch(t, slice, `{"metadata":{"annotations":null}}`)
	_, progress, err := refractctl(t, onCluster("uncordon", "tenant", "pavia")...)
	require.NoError(t, err)
	assert.Equal(t, "pavia: its ResourceSlices follow\npavia: uncordoned\n", progress)

	require.NoError(t, admin(t).Status().Patch(t.Context(), slice, client.RawPatch(types.MergePatchType, []byte(`{"status":{"conditions":[{"type":"Resources","status":"Accepted"}]}}`))))
	quota := quotaOf(t, "pavia", auth.ResourceSliceUser("share", "pavia"))
	_, _, err = refractctl(t, onCluster("cordon", "resourceslice", "share", "--timeout=3s")...)
	require.ErrorContains(t, err, "resourceslice share: "+waits)
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKeyFromObject(slice), slice))
	assert.Equal(t, "true", slice.Annotations[wire.CordonAnnotation])
	patch(t, quota, `{"spec":{"cordoned":true}}`)
	_, progress, err = refractctl(t, onCluster("cordon", "resourceslice", "share", "--namespace="+namespace)...)
	require.NoError(t, err)
	assert.Equal(t, "share: its Quota follows\nshare: cordoned\n", progress)
	patch(t, quota, `{"spec":{"cordoned":null}}`)
	_, _, err = refractctl(t, onCluster("uncordon", "resourceslice", "share")...)
	require.NoError(t, err)
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKeyFromObject(slice), slice))
	assert.NotContains(t, slice.Annotations, wire.CordonAnnotation)

	_, _, err = refractctl(t, onCluster("drain", "tenant", "pavia", "--timeout=3s")...)
	require.ErrorContains(t, err, "tenant pavia: "+waits)
	assert.Equal(t, auth.TenantDrained, condition())
	require.NoError(t, admin(t).Delete(t.Context(), slice))
	_, progress, err = refractctl(t, onCluster("drain", "tenant", "pavia")...)
	require.NoError(t, err)
	assert.Equal(t, "pavia: its access is revoked, and its remote namespaces are deleted\npavia: drained\n", progress)
}

// TestTenantsOfAdmittedConsumers checks that the commands wait for the Quota and the RoleBindings of a consumer that
// refractctl has admitted. The controllers create a Tenant for such a consumer (controllers/tenantaccess).
func TestTenantsOfAdmittedConsumers(t *testing.T) {
	const namespace = "liqo-tenant-imola"
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	tenant := &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "imola", Labels: map[string]string{wire.AdmittedByLabel: wire.AdmittedByRefractctl}}, Spec: auth.TenantSpec{ClusterID: "imola"}}
	create(t, tenant)
	create(t, &auth.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "offer", Labels: map[string]string{wire.NegotiateLabel: "true"}}})
	quota := quotaOf(t, "imola", "imola")
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "access", OwnerReferences: []metav1.OwnerReference{{APIVersion: auth.GroupVersion.String(), Kind: auth.TenantKind, Name: "imola", UID: tenant.UID}}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}}
	create(t, binding)
	_, _, err := refractctl(t, onCluster("cordon", "tenant", "imola", "--timeout=3s")...)
	require.ErrorContains(t, err, "waiting for the controller manager of this cluster", "a RoleBinding without subjects is not the access of a cordoned consumer")
	assert.True(t, isCordoned(t, quota))
	assert.Contains(t, quota.Annotations, wire.CordonTenantAnnotation, "liqoctl activate tenant takes it back")
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKeyFromObject(tenant), tenant))
	assert.Equal(t, auth.TenantCordoned, tenant.Spec.TenantCondition)
	patch(t, binding, `{"subjects":[{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"imola"}]}`)
	_, progress, err := refractctl(t, onCluster("cordon", "tenant", "imola")...)
	require.NoError(t, err)
	assert.Contains(t, progress, "imola: cordoned\n")
	_, _, err = refractctl(t, onCluster("drain", "tenant", "imola", "--timeout=3s")...)
	require.ErrorContains(t, err, "found no installation of Refract", "nothing is waited for before its access is revoked")
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKeyFromObject(tenant), tenant))
	assert.Equal(t, auth.TenantDrained, tenant.Spec.TenantCondition)
	_, progress, err = refractctl(t, onCluster("activate", "tenant", "imola")...)
	require.NoError(t, err)
	assert.Contains(t, progress, "imola: uncordoned\n")
	assert.False(t, isCordoned(t, quota))
	assert.NotContains(t, quota.Annotations, wire.CordonTenantAnnotation)
}

func TestResourceSlicesThatAreNotCordoned(t *testing.T) {
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-cuneo"}})
	for name, labels := range map[string]map[string]string{"asking": {wire.NegotiateLabel: "true"}, "own": nil} {
		create(t, &auth.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-cuneo", Name: name, Labels: labels}, Spec: auth.ResourceSliceSpec{ConsumerClusterID: ptr.To(core.ClusterID("cuneo"))}})
	}
	for name, want := range map[string]string{
		"absent": "there is no ResourceSlice absent in any namespace",
		"asking": "only negotiates what a virtual node offers, and has no Quota: cordon its consumer, refractctl cordon tenant cuneo",
		"own":    "is a request of this cluster: cordon it at its provider",
	} {
		_, _, err := refractctl(t, onCluster("cordon", "resourceslice", name)...)
		assert.ErrorContains(t, err, want, name)
	}
}
