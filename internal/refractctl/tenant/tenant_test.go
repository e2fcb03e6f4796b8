// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/internal/refractctl/cluster"
	"github.com/refract-project/refract/internal/refractctl/peeringtest"
	"github.com/refract-project/refract/internal/remotedata"
	"github.com/refract-project/refract/test/support/apistub"
)

// Tests in this package that call testenv.ForTest use a real control plane, because they also test how the API server
// handles bindings.

// admitted returns a provider that has admitted rome. Its API server is a stub.
func admitted(t *testing.T) (*peeringtest.Side, *cluster.Cluster, Tenant, *cluster.Writer) {
	t.Helper()
	stub := peeringtest.New(t, "milan").Install(t, "10.2.0.0/16").Play(t)
	c := &cluster.Cluster{Name: stub.ID, Config: stub.Config, Client: stub.Client, Clientset: stub.Clientset}
	side, err := c.Inspect(t.Context())
	require.NoError(t, err)
	rome, writer := Tenant{Provider: side, Consumer: "rome"}, cluster.NewWriter(side)
	require.NoError(t, writer.CreateTenant(t.Context(), absent(t, "rome")))
	require.NoError(t, writer.Apply(t.Context(), append(rome.Access(), rome.Quota(nil))...))
	return stub, c, rome, writer
}

func putMap(t *testing.T, stub *peeringtest.Side) {
	t.Helper()
	stub.Put(t, &offloading.NamespaceMap{TypeMeta: metav1.TypeMeta{APIVersion: offloading.GroupVersion.String(), Kind: "NamespaceMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "milan", Labels: map[string]string{wire.ReplicatedLabel: "true"}},
		Status:     offloading.NamespaceMapStatus{CurrentMapping: map[string]offloading.RemoteNamespaceStatus{"shop": {RemoteNamespace: "shop-rome"}}}})
}

// TestDrainFailsAtAnyWrite checks that a drain can be continued after any of its writes has failed, and that Activate
// restores the previous state.
func TestDrainFailsAtAnyWrite(t *testing.T) {
	t.Parallel()
	for number := 1; ; number++ {
		stub, c, rome, _ := admitted(t)
		before := stub.Inventory()
		putMap(t, stub)
		names, err := rome.RemoteNamespaces(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"shop-rome"}, names)
		count := 0
		stub.OnRequest(func(r apistub.Request) *apistub.Failure {
			if !r.IsWrite() {
				return nil
			}
			if count++; count < number {
				return nil
			}
			return apistub.Forbidden
		})
		err = Drain(t.Context(), c, "rome", true, nil)
		stub.OnRequest(nil)
		if count >= number {
			require.ErrorContains(t, err, "Forbidden", "write %d", number)
			require.NoError(t, Drain(t.Context(), c, "rome", true, nil))
		} else {
			require.NoError(t, err)
			assert.Greater(t, number, 3)
		}
		require.ErrorContains(t, rome.RequireActive(t.Context()), "consumer rome was drained: run refractctl activate tenant rome")
		access, err := rome.FindAccess(t.Context(), nil)
		require.NoError(t, err)
		assert.Empty(t, access)
		for range 2 {
			require.NoError(t, Activate(t.Context(), c, "rome"))
		}
		require.NoError(t, rome.RequireActive(t.Context()))
		assert.Equal(t, before, stub.Inventory(), "write %d", number)
		if count < number {
			return
		}
	}
}

// TestDrainRecordsTheConfirmation checks that a drain confirms the deletion of data in the NamespaceMap before it
// deletes the NamespaceMap, but only if the user has confirmed it. Otherwise the controllers keep the data.
func TestDrainRecordsTheConfirmation(t *testing.T) {
	t.Parallel()
	for _, deleteData := range []bool{false, true} {
		stub, c, _, _ := admitted(t)
		putMap(t, stub)
		isConfirmed, isConfirmedInTime, isDeleted := false, false, false
		stub.Admit(func(object *unstructured.Unstructured) *apierrors.StatusError {
			isConfirmed = isConfirmed || object.GetKind() == offloading.NamespaceMapKind && remotedata.IsConfirmed(object)
			return nil
		})
		stub.OnRequest(func(r apistub.Request) *apistub.Failure {
			if r.Verb == "delete" && r.Resource == "namespacemaps" {
				isDeleted, isConfirmedInTime = true, isConfirmed
			}
			return nil
		})
		require.NoError(t, Drain(t.Context(), c, "rome", deleteData, nil))
		assert.True(t, isDeleted)
		assert.Equal(t, deleteData, isConfirmedInTime)
	}
}

// TestDrainWaitsForTheControllers checks that the drain of a consumer with a Tenant waits until the controllers have
// revoked the access.
func TestDrainWaitsForTheControllers(t *testing.T) {
	t.Parallel()
	stub, c, rome, _ := admitted(t)
	stub.Put(t, &auth.Tenant{TypeMeta: metav1.TypeMeta{APIVersion: auth.GroupVersion.String(), Kind: "Tenant"}, ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-rome", Name: "rome", Labels: map[string]string{wire.AdmittedByLabel: wire.AdmittedByRefractctl}},
		Spec: auth.TenantSpec{ClusterID: "rome", TenantCondition: auth.TenantDrained}})
	require.Error(t, rome.RequireActive(t.Context()))
	var said []string
	require.NoError(t, Drain(t.Context(), c, "rome", false, func(line string) {
		said = append(said, line)
		for _, object := range rome.Access() { // this loop does the work of the controllers
			if binding, ok := object.(*rbacv1.RoleBinding); ok {
				stub.Remove(rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), binding.Namespace, binding.Name)
			}
		}
	}))
	assert.Contains(t, fmt.Sprint(said), "waiting for the controller manager to revoke RoleBinding liqo-tenant-rome/")
}

func TestDrainNeedsAConsumer(t *testing.T) {
	t.Parallel()
	_, c, _, _ := admitted(t)
	require.ErrorContains(t, Drain(t.Context(), c, "turin", false, nil), "there is no peering with turin: its peers are rome")
	require.NoError(t, Activate(t.Context(), c, "turin"))
}

// TestRemedies checks that the remedy for an object that is left depends on whether an owner, Helm, refractctl or
// another client created it.
func TestRemedies(t *testing.T) {
	t.Parallel()
	for want, object := range map[string]metav1.ObjectMeta{
		"delete its owner, Deployment d": {OwnerReferences: []metav1.OwnerReference{{Kind: "Deployment", Name: "d", Controller: ptr.To(true)}}},
		"Helm keeps it: delete it":       {Annotations: map[string]string{helmPolicy: "keep", helmRelease: "r"}},
		"remove the consumer from the values of Helm release r in namespace n (consumers)": {Annotations: map[string]string{helmRelease: "r", helmReleaseNamespace: "n"}},
		"it goes with the rest of the peering":                                             cluster.Meta("", "", nil),
		"delete it with kubectl, refractctl has not created it":                            {},
	} {
		assert.Contains(t, remedyFor(&metav1.PartialObjectMetadata{ObjectMeta: object}), want)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	stub, c, rome, _ := admitted(t)
	require.NoError(t, rome.CheckLimits(nil))
	require.ErrorContains(t, rome.CheckLimits(Limits{"nonsense": nil}), "--tenant-limit: ")
	require.NoError(t, rome.SetLimits(t.Context(), nil))
	require.NoError(t, rome.SetLimits(t.Context(), Limits{"a": ptr.To("1")}))
	get := func() map[string]string {
		return stub.Get(corev1.SchemeGroupVersion.WithKind("Namespace"), "", "liqo-tenant-rome").GetAnnotations()
	}
	assert.Contains(t, fmt.Sprint(get()), "a:1")
	require.NoError(t, rome.SetLimits(t.Context(), Limits{"a": nil}))
	assert.NotContains(t, fmt.Sprint(get()), "a:1")
	stub.OnRequest(func(apistub.Request) *apistub.Failure { return apistub.Forbidden })
	require.ErrorContains(t, rome.SetLimits(t.Context(), Limits{"a": nil}), "cluster milan: annotating Namespace liqo-tenant-rome")
	liqo := Tenant{Provider: &cluster.Side{Cluster: c, RunsLiqo: true}, Consumer: "rome"}
	require.ErrorContains(t, liqo.CheckLimits(Limits{"a": nil}), "runs Liqo, which has no such limits")
}

// TestRenewal checks that the permission to renew certificates depends on the chart's role, and is revoked when the
// record of keys is removed. A dry run must not remove the record.
func TestRenewal(t *testing.T) {
	t.Parallel()
	stub, _, rome, writer := admitted(t)
	before := stub.Inventory()
	renews, err := rome.PermitRenewal(t.Context(), writer)
	require.NoError(t, err)
	assert.False(t, renews, "the chart has no role")
	assert.Equal(t, before, stub.Inventory())
	stub.PutRole(t, rbac.RemoteRenewal())
	before = stub.Inventory()
	renews, err = rome.PermitRenewal(t.Context(), writer)
	require.NoError(t, err)
	assert.True(t, renews)
	require.NoError(t, rome.writeKeys(t.Context(), []string{"key"}))
	namespace, _, err := rome.Provider.Find(t.Context(), rome.NamespaceObject())
	require.NoError(t, err)
	assert.NotEmpty(t, namespace.Annotations[wire.ConsumerKeysAnnotation])
	assert.Greater(t, len(rome.bindings(namespace)), len(rome.bindings(&corev1.Namespace{})), "with keys, the binding for renewals is one of the consumer's")
	renewing, writes := stub.Inventory(), stub.Writes()
	require.NoError(t, rome.RevokeRenewal(t.Context(), cluster.NewRemover(rome.Provider, true)))
	assert.Equal(t, renewing, stub.Inventory(), "a dry run changes nothing")
	assert.Equal(t, writes, stub.Writes())
	for range 2 {
		require.NoError(t, rome.RevokeRenewal(t.Context(), cluster.NewRemover(rome.Provider, false)))
		assert.Equal(t, before, stub.Inventory())
	}
	require.Error(t, rome.RecordKey(t.Context(), []byte("no kubeconfig"), true))
}
