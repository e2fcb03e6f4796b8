// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package objectquota_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/test/support/testenv"
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
		// The API server enforces the limits in the status, which this test sets.
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

// TestObjectsOfAConsumer checks that the API server enforces a Quota's limits for storage, ports, load balancers and
// objects. They must apply to all namespaces of the consumer together, even while no controller manager runs.
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

	// The second namespace gets the remaining amount.
	awaitHard(t, bank, list("requests.storage", "4Gi", "services.nodeports", "0", "count/secrets", "2"))
	awaitHard(t, shop, whole)
	m.Stop(t)
	refused(service(bank, "third", corev1.ServiceTypeNodePort), "services.nodeports")
	refused(claim(bank, "data", "5Gi"), "requests.storage")
	provider.Create(t, claim(bank, "data", "4Gi"))
	provider.Create(t, service(bank, "inside", corev1.ServiceTypeClusterIP))

	// The limits in a second user's Quota are added to the limits of the first. If a sum is lower than the current
	// usage, existing objects are kept, but no more can be created.
	provider.StartManager(t)
	provider.Create(t, &offloading.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "more"}, Spec: offloading.QuotaSpec{User: "more", Resources: list("services.nodeports", "2")}})
	awaitHard(t, bank, list("requests.storage", "4Gi", "services.nodeports", "2", "count/secrets", "2"))
	provider.Patch(t, q, `{"spec":{"resources":{"requests.storage":"1Gi"}}}`)
	awaitHard(t, shop, list("requests.storage", "6Gi", "services.nodeports", "3", "count/secrets", "2"))
	require.NoError(t, provider.Client.Get(t.Context(), client.ObjectKey{Namespace: shop, Name: "data"}, &corev1.PersistentVolumeClaim{}))

	// If no Quota limits objects, the ResourceQuota is removed. The other consumer has never had one.
	provider.Patch(t, q, `{"spec":{"resources":{"requests.storage":null,"services.nodeports":null,"count/secrets":null}}}`)
	provider.Delete(t, &offloading.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "more"}})
	for _, namespace := range []string{shop, bank, other} {
		provider.AwaitGone(t, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: wire.ConsumerQuota}})
	}
	err := provider.Client.Get(t.Context(), client.ObjectKey{Namespace: other, Name: wire.ConsumerQuota}, &corev1.ResourceQuota{})
	assert.True(t, apierrors.IsNotFound(err))
}

// TestUsageIsWrittenToOtherNamespacesTogether checks that several changes of the usage in a namespace cause only one
// write in each of the others. A ResourceQuota that cannot be written must not delay the others.
func TestUsageIsWrittenToOtherNamespacesTogether(t *testing.T) {
	m := provider.StartManager(t, func(o *controllers.Options) { o.ConsumerDefaults = list("services", "100") })
	shop, bank, inn := provider.Extended(t, "pisa"), provider.Extended(t, "pisa"), provider.Extended(t, "pisa")
	for _, namespace := range []string{shop, bank, inn} {
		awaitHard(t, namespace, list("services", "100"))
	}
	before := len(m.Writes.About("/" + bank + "/resourcequotas"))
	const created = 30
	begin := time.Now()
	for n := range created {
		provider.Create(t, service(shop, fmt.Sprint("c", n), corev1.ServiceTypeClusterIP))
	}
	awaitHard(t, bank, list("services", "70"))
	assert.LessOrEqual(t, len(m.Writes.About("/"+bank+"/resourcequotas"))-before, 4+2*int(time.Since(begin)/time.Second))

	// The first namespace that is written is refused.
	refused, other := min(bank, inn), max(bank, inn)
	mend := provider.Deny(t, "no-resourcequotas", admissionv1.Update, "", "resourcequotas", refused, func(c client.Client) error {
		probe := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: refused, Name: wire.ConsumerQuota}}
		return c.Patch(t.Context(), probe, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)),
			client.DryRunAll)
	})
	provider.Create(t, service(shop, "last", corev1.ServiceTypeClusterIP))
	awaitHard(t, other, list("services", "69"))
	_ = m.Writes.Denied()
	mend()
	awaitHard(t, refused, list("services", "69"))
	_ = m.Writes.Denied()
}

// TestDefaultsOfConsumers checks that the defaults apply to a consumer without a Quota, and to resources that are in
// none of a consumer's Quotas.
func TestDefaultsOfConsumers(t *testing.T) {
	tenant := provider.Namespace(t)
	provider.Patch(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}}, fmt.Sprintf(`{"metadata":{"labels":{%q:"true",%q:"siena"}}}`, wire.TenantNamespaceLabel, wire.RemoteClusterIDLabel))
	defaults := func(o *controllers.Options) {
		o.ConsumerDefaults = list("services.nodeports", "2", "services.loadbalancers", "1", "requests.storage", "10Gi")
	}
	m := provider.StartManager(t, defaults)
	shop, bank := provider.Extended(t, "siena"), provider.Extended(t, "siena")
	for _, namespace := range []string{shop, bank} {
		awaitHard(t, namespace, list("services.nodeports", "2", "services.loadbalancers", "1", "requests.storage", "10Gi"))
	}
	refused := func(object client.Object, words string) {
		t.Helper()
		err := provider.Client.Create(t.Context(), object)
		require.ErrorContains(t, err, "exceeded quota: "+wire.ConsumerQuota)
		require.ErrorContains(t, err, words)
	}
	provider.Create(t, service(shop, "balanced", corev1.ServiceTypeLoadBalancer)) // the Service also gets a node port
	awaitHard(t, bank, list("services.nodeports", "1", "services.loadbalancers", "0", "requests.storage", "10Gi"))
	refused(service(bank, "balanced", corev1.ServiceTypeLoadBalancer), "services.loadbalancers")
	provider.Create(t, service(bank, "port", corev1.ServiceTypeNodePort))
	refused(service(bank, "another", corev1.ServiceTypeNodePort), "services.nodeports")
	refused(claim(bank, "data", "11Gi"), "requests.storage")

	// A Quota limits only the resources in it. The defaults limit all other resources.
	provider.Create(t, &offloading.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "siena"}, Spec: offloading.QuotaSpec{User: "siena", Resources: list("cpu", "4", "services.nodeports", "5")}})
	awaitHard(t, shop, list("services.nodeports", "4", "services.loadbalancers", "1", "requests.storage", "10Gi"))

	// The defaults are enforced even if Quotas are ignored.
	m.Stop(t)
	m = provider.StartManager(t, defaults, func(o *controllers.Options) { o.Quotas.Off = true })
	awaitHard(t, shop, list("services.nodeports", "1", "services.loadbalancers", "1", "requests.storage", "10Gi"))
	m.Stop(t)
	provider.StartManager(t, func(o *controllers.Options) { o.Quotas.Off = true })
	provider.AwaitGone(t, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: wire.ConsumerQuota}})
}
