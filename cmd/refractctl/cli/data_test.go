// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/cmd/refractctl/cli/invocation"
	"github.com/refract-project/refract/internal/remotedata"
)

const hold = "test.example/hold"

// remoteData creates a volume of the namespace with data on a provider.
func remoteData(t *testing.T, provider, namespace string, policy corev1.PersistentVolumeReclaimPolicy) *corev1.PersistentVolume {
	t.Helper()
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + namespace, Labels: wire.ReflectionLabels("rome", provider)}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: wire.DefaultStorageClass, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, PersistentVolumeReclaimPolicy: policy,
		ClaimRef:               &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: namespace, Name: "data"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/tmp/liqo-placeholder"}},
	}}
	create(t, volume)
	t.Cleanup(func() { discard(t, volume) })
	return volume
}

// discard deletes an object regardless of its finalizers.
func discard(t *testing.T, object client.Object) {
	t.Helper()
	ctx, c := context.WithoutCancel(t.Context()), admin(t)
	err := c.Delete(ctx, object)
	if err == nil {
		err = invocation.PatchTo(ctx, c, object, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	}
	assert.NoError(t, client.IgnoreNotFound(err))
}

func TestUnoffloadRefusesToDeleteData(t *testing.T) {
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "vault"}})
	nso := &offloading.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "vault", Name: offloading.NamespaceOffloadingName, Finalizers: []string{hold}}}
	create(t, nso)
	t.Cleanup(func() { discard(t, nso) })
	volume := remoteData(t, "milan", "vault", corev1.PersistentVolumeReclaimRetain)
	get := func() *offloading.NamespaceOffloading {
		require.NoError(t, admin(t).Get(t.Context(), client.ObjectKeyFromObject(nso), nso))
		return nso
	}
	// A volume with the policy Retain is never deleted.
	for _, args := range [][]string{{}, {"--dry-run"}, {"--delete-data"}} {
		_, _, err := refractctl(t, onCluster(append([]string{"unoffload", "namespace", "vault"}, args...)...)...)
		require.ErrorContains(t, err, "pvc-vault of claim vault/data (Retain)", args)
		assert.Equal(t, invocation.ExitFailed, invocation.ExitCode(err))
		assert.Nil(t, get().DeletionTimestamp, args)
	}
	require.NoError(t, invocation.PatchTo(t.Context(), admin(t), volume, map[string]any{"spec": map[string]any{"persistentVolumeReclaimPolicy": "Delete"}}))
	for _, args := range [][]string{{}, {"--dry-run"}} {
		_, _, err := refractctl(t, onCluster(append([]string{"unoffload", "namespace", "vault"}, args...)...)...)
		require.ErrorContains(t, err, "run the command again with --delete-data", args)
		assert.Nil(t, get().DeletionTimestamp, args)
	}
	_, progress, err := refractctl(t, onCluster("unoffload", "namespace", "vault", "--delete-data", "--dry-run")...)
	require.NoError(t, err)
	assert.Contains(t, progress, "vault: warning: the data of the volumes pvc-vault of claim vault/data is deleted")
	assert.Contains(t, progress, "vault: would be unoffloaded")
	assert.Nil(t, get().DeletionTimestamp)

	_, _, err = refractctl(t, onCluster("unoffload", "namespace", "vault", "--delete-data", "--timeout=3s")...)
	assert.Equal(t, invocation.ExitTimedOut, invocation.ExitCode(err), "nobody removes the finalizer: %v", err)
	assert.NotNil(t, get().DeletionTimestamp)
	assert.True(t, remotedata.IsConfirmed(nso))
}

func TestDeleteVirtualNodeRefusesToDeleteData(t *testing.T) {
	vn := virtualNode(t, "liqo-tenant-pordenone", "pordenone")
	t.Cleanup(func() { discard(t, vn) })
	remoteData(t, "pordenone", "safe", corev1.PersistentVolumeReclaimDelete)
	_, _, err := refractctl(t, onCluster("delete", "virtualnode", "pordenone")...)
	require.ErrorContains(t, err, "pvc-safe of claim safe/data")
	assert.Equal(t, invocation.ExitFailed, invocation.ExitCode(err))
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKeyFromObject(vn), vn))
	assert.Nil(t, vn.DeletionTimestamp)

	_, _, err = refractctl(t, onCluster("delete", "virtualnode", "pordenone", "--delete-data", "--timeout=3s")...)
	assert.Equal(t, invocation.ExitTimedOut, invocation.ExitCode(err), "nobody removes the finalizer: %v", err)
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKeyFromObject(vn), vn))
	assert.NotNil(t, vn.DeletionTimestamp)
	assert.True(t, remotedata.IsConfirmed(vn))
}

// announceHold creates the Event of a controller about claims that were created on a provider.
func announceHold(t *testing.T, kind string, object client.Object) {
	t.Helper()
	create(t, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName() + ".held"},
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: object.GetNamespace(), Name: object.GetName()},
		Reason:         remotedata.HeldReason, Message: "claims that were created there have data: held/db", Type: corev1.EventTypeWarning,
		EventTime: metav1.NowMicro(), ReportingController: "replicator", ReportingInstance: "test", Action: "Replicate",
	})
}

// TestClaimsOfTheProviderAreNamed checks that claims that only the provider knows about are named, with the remedy, as
// soon as the controllers have found them, and that the flag confirms their deletion.
func TestClaimsOfTheProviderAreNamed(t *testing.T) {
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "archive"}})
	nso := &offloading.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "archive", Name: offloading.NamespaceOffloadingName, Finalizers: []string{hold}}}
	create(t, nso)
	t.Cleanup(func() { discard(t, nso) })
	require.NoError(t, admin(t).Delete(t.Context(), nso))
	announceHold(t, offloading.NamespaceOffloadingKind, nso)
	_, _, err := refractctl(t, onCluster("unoffload", "namespace", "archive", "--timeout=30s")...)
	require.ErrorContains(t, err, "archive: claims that were created there have data: held/db. You can also run the command again with --delete-data")
	assert.Equal(t, invocation.ExitFailed, invocation.ExitCode(err))
	_, _, err = refractctl(t, onCluster("unoffload", "namespace", "archive", "--delete-data", "--timeout=1s")...)
	assert.Equal(t, invocation.ExitTimedOut, invocation.ExitCode(err), "nobody removes the finalizer: %v", err)
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKeyFromObject(nso), nso))
	assert.True(t, remotedata.IsConfirmed(nso))

	vn := virtualNode(t, "liqo-tenant-gorizia", "gorizia")
	t.Cleanup(func() { discard(t, vn) })
	require.NoError(t, admin(t).Delete(t.Context(), vn))
	announceHold(t, offloading.NamespaceMapKind, &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: vn.Namespace, Name: string(vn.Spec.ClusterID)}})
	_, _, err = refractctl(t, onCluster("delete", "virtualnode", "gorizia", "--timeout=30s")...)
	require.ErrorContains(t, err, "gorizia: claims that were created there have data: held/db")
	_, _, err = refractctl(t, onCluster("delete", "virtualnode", "gorizia", "--delete-data", "--timeout=1s")...)
	assert.Equal(t, invocation.ExitTimedOut, invocation.ExitCode(err), "nobody removes the finalizer: %v", err)
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKeyFromObject(vn), vn))
	assert.True(t, remotedata.IsConfirmed(vn))
}

func TestDrainTenantRefusesToDeleteData(t *testing.T) {
	for _, name := range []string{"liqo-tenant-ostuni", "shop-ostuni"} {
		create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	tenant := &auth.Tenant{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-ostuni", Name: "ostuni"}, Spec: auth.TenantSpec{ClusterID: "ostuni"}}
	create(t, tenant)
	t.Cleanup(func() { discard(t, tenant) })
	nm := &offloading.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-ostuni", Name: "milan", Labels: map[string]string{wire.ReplicatedLabel: "true"}}}
	create(t, nm)
	require.NoError(t, admin(t).Status().Patch(t.Context(), nm, client.RawPatch("application/merge-patch+json",
		[]byte(`{"status":{"currentMapping":{"shop":{"remoteNamespace":"shop-ostuni","phase":"Accepted"}}}}`))))
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-ostuni", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: ptr.To("fast"), VolumeName: "disk", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	create(t, claim)
	_, _, err := refractctl(t, onCluster("drain", "tenant", "ostuni", "--timeout=3s")...)
	require.ErrorContains(t, err, "shop-ostuni/data")
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKeyFromObject(tenant), tenant))
	assert.NotEqual(t, auth.TenantDrained, tenant.Spec.TenantCondition)

	_, _, err = refractctl(t, onCluster("drain", "tenant", "ostuni", "--timeout=3s", "--delete-data")...)
	assert.Equal(t, invocation.ExitTimedOut, invocation.ExitCode(err), "no controller answers: %v", err)
	require.NoError(t, admin(t).Get(t.Context(), client.ObjectKeyFromObject(tenant), tenant))
	assert.Equal(t, auth.TenantDrained, tenant.Spec.TenantCondition)
}
