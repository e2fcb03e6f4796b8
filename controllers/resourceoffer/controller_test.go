// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resourceoffer_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	auth "github.com/refract-project/refract/api/authentication/v1beta1"
	core "github.com/refract-project/refract/api/core/v1beta1"
	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

var provider = controllertest.Cluster{ID: "milan", Options: testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true}}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &provider)) }

const tenant = "liqo-tenant-rome"

func resources(cpu string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
}

// request returns a ResourceSlice as refractctl peer creates it.
func request(namespace, name, cpu string) *auth.ResourceSlice {
	return &auth.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{wire.NegotiateLabel: "true"}},
		Spec:       auth.ResourceSliceSpec{ConsumerClusterID: ptr.To(core.ClusterID("rome")), Resources: resources(cpu)},
	}
}

// await waits until the resources of a slice have the given decision and holds returns true for its status. It returns
// the slice.
func await(t *testing.T, name string, decision auth.ResourceSliceConditionStatus, holds func(*auth.ResourceSliceStatus) bool) *auth.ResourceSlice {
	t.Helper()
	slice := &auth.ResourceSlice{}
	controllertest.Eventually(t, fmt.Sprintf("ResourceSlice %s to be %s", name, decision), func() error {
		if err := provider.Client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: name}, slice); err != nil {
			return err
		}
		if slice.Status.Decision(auth.ResourcesCondition) != decision || !holds(&slice.Status) {
			return fmt.Errorf("its status is %+v", slice.Status)
		}
		return nil
	})
	return slice
}

func grants(cpu string) func(*auth.ResourceSliceStatus) bool {
	return func(s *auth.ResourceSliceStatus) bool { return s.Resources.Cpu().Equal(resource.MustParse(cpu)) }
}

func always(*auth.ResourceSliceStatus) bool { return true }

// TestOffers checks that publishing offers needs no permission to sign certificates, and creates no users or Quotas.
func TestOffers(t *testing.T) {
	require.NoError(t, provider.Grant(t.Context(), rbac.Manager{Subject: rbac.User(controllertest.ManagerUser)}.ResourceOffers()...))
	provider.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant, Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: "rome"}}})
	provider.Create(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Provisioner: "example.com/disk"})
	manager := provider.StartManager(t, func(o *controllers.Options) {
		o.ResourceOffers.Enabled = true
		offer := &o.ResourceOffers.Offer
		offer.Limit = corev1.ResourceList{"cpu": resource.MustParse("10"), "example.com/gpu": resource.MustParse("1")}
		offer.Storage, offer.DefaultStorageClass, offer.Labels = true, "fast", map[string]string{"topology.kubernetes.io/zone": "eu-1"}
		offer.IngressClasses = []offloading.IngressType{{IngressClassName: "nginx", Default: true}}
		offer.LoadBalancerClasses = []offloading.LoadBalancerType{{LoadBalancerClassName: "public"}}
		offer.Resources = corev1.ResourceList{"memory": resource.MustParse("8Gi")}
	})
	first := request(tenant, "milan", "6")
	provider.Create(t, first)
	status := await(t, "milan", auth.ResourceSliceAccepted, always).Status
	assert.Equal(t, []offloading.StorageType{{StorageClassName: "fast", Default: true}}, status.StorageClasses)
	assert.Equal(t, []offloading.IngressType{{IngressClassName: "nginx", Default: true}}, status.IngressClasses)
	assert.Equal(t, []offloading.LoadBalancerType{{LoadBalancerClassName: "public"}}, status.LoadBalancerClasses)
	assert.Equal(t, map[string]string{"topology.kubernetes.io/zone": "eu-1"}, status.NodeLabels)
	assert.Len(t, status.Resources, 1, "no more than it asks for")
	assert.Nil(t, status.AuthParams)
	assert.Nil(t, status.Condition(auth.AuthenticationCondition))
	provider.AwaitEvent(t, tenant, auth.ResourceSliceKind, "milan", "ResourceSliceResourcesAccepted")

	t.Run("follow the classes of the cluster", func(t *testing.T) {
		provider.Create(t, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "archive"}, Provisioner: "example.com/tape"})
		await(t, "milan", auth.ResourceSliceAccepted, func(s *auth.ResourceSliceStatus) bool { return len(s.StorageClasses) == 2 })
	})
	t.Run("are no more than the Quota", func(t *testing.T) {
		quota := &offloading.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "rome"}, Spec: offloading.QuotaSpec{User: "rome", LimitsEnforcement: offloading.NoLimitsEnforcement, Resources: resources("3")}}
		provider.Create(t, quota)
		await(t, "milan", auth.ResourceSliceAccepted, grants("3"))
		provider.Delete(t, quota)
		await(t, "milan", auth.ResourceSliceAccepted, grants("6"))
	})
	t.Run("end at the limit of the consumer", func(t *testing.T) {
		provider.Create(t, request(tenant, "milan-b", "6"))
		slice := await(t, "milan-b", auth.ResourceSliceDenied, always)
		assert.Contains(t, slice.Status.Condition(auth.ResourcesCondition).Message, "but only 4 of the 10")
		provider.Delete(t, first)
		await(t, "milan-b", auth.ResourceSliceAccepted, grants("6"))
	})
	t.Run("are for peers alone", func(t *testing.T) {
		elsewhere := provider.Namespace(t)
		others := map[string]*auth.ResourceSlice{"no tenant namespace": request(elsewhere, "elsewhere", "1"), "for another consumer": request(tenant, "turin", "1"),
			"for Liqo": request(tenant, "replicated", "1"), "with a request for a certificate": request(tenant, "csr", "1"), "unmarked": request(tenant, "unmarked", "1"), "of another class": request(tenant, "class", "1")}
		others["for another consumer"].Spec.ConsumerClusterID = ptr.To(core.ClusterID("turin"))
		others["for Liqo"].Labels[wire.ReplicatedLabel] = "true"
		others["with a request for a certificate"].Spec.CSR = []byte("csr")
		others["unmarked"].Labels = nil
		others["of another class"].Spec.Class = "gpu"
		for _, slice := range others {
			provider.Create(t, slice)
		}
		assert.Contains(t, provider.AwaitEvent(t, tenant, auth.ResourceSliceKind, "turin", "NothingOffered").Note, "not the tenant namespace of that cluster")
		provider.AwaitEvent(t, elsewhere, auth.ResourceSliceKind, "elsewhere", "NothingOffered")
		provider.Create(t, request(tenant, "last", "1"))
		await(t, "last", auth.ResourceSliceAccepted, always)
		for what, slice := range others {
			provider.Get(t, slice, slice.Namespace, slice.Name)
			assert.Empty(t, slice.Status.Conditions, what)
		}
	})
	assert.Empty(t, manager.Writes.About("/quotas"))
	assert.Empty(t, manager.Writes.About("/certificatesigningrequests"))
}
