// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package objectquota_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/testenv"
)

var provider = controllertest.Cluster{ID: "provider", Options: testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true}}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &provider)) }

// awaitHard waits until the ResourceQuota of a namespace has these limits.
func awaitHard(t *testing.T, namespace string, want corev1.ResourceList) {
	t.Helper()
	controllertest.Eventually(t, "the ResourceQuota of "+namespace, func() error {
		found := &corev1.ResourceQuota{}
		if err := provider.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: wire.ConsumerQuota}, found); err != nil {
			return err
		}
		// The API server enforces the limits in the status.
		for _, list := range []corev1.ResourceList{found.Spec.Hard, found.Status.Hard} {
			for name, amount := range want {
				if is := list[name]; is.Cmp(amount) != 0 || len(list) != len(want) {
					return fmt.Errorf("it is %v", list)
				}
			}
		}
		return nil
	})
}

func list(pairs ...string) corev1.ResourceList {
	all := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		all[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return all
}

func service(namespace, name string, kind corev1.ServiceType) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{{Port: 80}}}}
}

func claim(namespace, name, size string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: corev1.VolumeResourceRequirements{Requests: list("storage", size)}}}
}

// The limits of a Quota for storage, ports, load balancers and objects are enforced by the API server, for all
// namespaces of the consumer together, even while no controller manager runs.
func TestObjectsOfAConsumer(t *testing.T) {
	tenant := provider.Namespace(t)
	provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}}, fmt.Sprintf(`{"metadata":{"labels":{%q:"true",%q:"rome"}}}`, wire.TenantNamespaceLabel, wire.RemoteClusterIDLabel))
	shop, bank, other := provider.Extended(t, "rome"), provider.Extended(t, "rome"), provider.Extended(t, "turin")
	q := &offloading.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "rome"}, Spec: offloading.QuotaSpec{User: "rome", Resources: list(
		"cpu", "4", "pods", "10", "limits.cpu", "4", "requests.storage", "10Gi", "services.nodeports", "1", "count/secrets", "2")}}
	provider.Create(t, q)
	m := provider.StartManager(t)
	whole := list("requests.storage", "10Gi", "services.nodeports", "1", "count/secrets", "2")
	awaitHard(t, shop, whole)
	awaitHard(t, bank, whole)

	refused := func(object client.Object, words string) {
		t.Helper()
		if err := provider.Client.Create(t.Context(), object); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%T %s: %v, want %q", object, object.GetName(), err, words)
		}
	}
	provider.Create(t, service(shop, "first", corev1.ServiceTypeNodePort))
	refused(service(shop, "second", corev1.ServiceTypeNodePort), "exceeded quota")
	provider.Create(t, claim(shop, "data", "6Gi"))
	refused(claim(shop, "more", "5Gi"), "requests.storage")

	// The other namespace gets the rest.
	awaitHard(t, bank, list("requests.storage", "4Gi", "services.nodeports", "0", "count/secrets", "2"))
	awaitHard(t, shop, whole)
	m.Stop(t)
	refused(service(bank, "third", corev1.ServiceTypeNodePort), "services.nodeports")
	refused(claim(bank, "data", "5Gi"), "requests.storage")
	provider.Create(t, claim(bank, "data", "4Gi"))
	provider.Create(t, service(bank, "inside", corev1.ServiceTypeClusterIP))

	// The Quota of a second user is added. A limit below the present use revokes nothing and permits no more.
	provider.StartManager(t)
	provider.Create(t, &offloading.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "more"}, Spec: offloading.QuotaSpec{User: "more", Resources: list("services.nodeports", "2")}})
	awaitHard(t, bank, list("requests.storage", "4Gi", "services.nodeports", "2", "count/secrets", "2"))
	provider.Patch(t, q, `{"spec":{"resources":{"requests.storage":"1Gi"}}}`)
	awaitHard(t, shop, list("requests.storage", "6Gi", "services.nodeports", "3", "count/secrets", "2"))
	require.NoError(t, provider.Client.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: "data"}, &corev1.PersistentVolumeClaim{}))

	// Without such a limit there is no ResourceQuota, and another consumer never had one.
	provider.Patch(t, q, `{"spec":{"resources":{"requests.storage":null,"services.nodeports":null,"count/secrets":null}}}`)
	provider.Delete(t, &offloading.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "more"}})
	for _, namespace := range []string{shop, bank, other} {
		provider.AwaitGone(t, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: wire.ConsumerQuota}})
	}
	err := provider.Client.Get(t.Context(), client.ObjectKey{Namespace: other, Name: wire.ConsumerQuota}, &corev1.ResourceQuota{})
	assert.True(t, apierrors.IsNotFound(err))
}
