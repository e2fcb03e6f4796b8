// Copyright The Refract Authors
// SPDX-License-Identifier: Apache-2.0

package resourceslice_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	offloading "github.com/refract-project/refract/api/offloading/v1beta1"
	"github.com/refract-project/refract/api/wire"
	"github.com/refract-project/refract/controllers"
	"github.com/refract-project/refract/controllers/internal/controllertest"
	"github.com/refract-project/refract/internal/rbac"
	"github.com/refract-project/refract/test/support/testenv"
)

var (
	// provider has no garbage collector, so only the controller deletes Quotas.
	provider = controllertest.Cluster{ID: "milan", Options: testenv.Options{CRDPaths: []string{"../../api/crds"}, NoScheduler: true,
		ExtraControllerManagerArgs: []string{"--controllers=*,-garbage-collector-controller"}}}
	bare = controllertest.Cluster{ID: "turin", Options: testenv.Options{CRDPaths: former(), NoScheduler: true}}
)

// former returns the paths of the CRDs in an earlier chart, which did not contain Liqo's authentication CRDs.
func former() (paths []string) {
	for _, group := range []string{"core.liqo.io", "offloading.liqo.io", "plugins.refract.io"} {
		found, err := filepath.Glob("../../api/crds/" + group + "_*.yaml")
		if err != nil || len(found) == 0 {
			panic("no CRDs of " + group)
		}
		paths = append(paths, found...)
	}
	return paths
}

func TestMain(m *testing.M) { os.Exit(controllertest.Main(m, &provider, &bare)) }

// ofRome is the suffix of the names of rome's users: the first six bytes of sha256("rome").
const ofRome = "-a8a4c692b93b"

const tenant = "liqo-tenant-rome"

// slice returns a ResourceSlice as Liqo's crd-replicator creates it on the provider.
func slice(namespace, name, consumer string) *unstructured.Unstructured {
	s := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.liqo.io/v1beta1", "kind": "ResourceSlice",
		"metadata": map[string]any{"namespace": namespace, "name": name, "labels": map[string]any{wire.ReplicatedLabel: "true"}},
		"spec":     map[string]any{"consumerClusterID": consumer, "resources": map[string]any{"cpu": "64"}},
	}}
	return s
}

// answer sets the status that Liqo's authentication module would set.
func answer(t *testing.T, s client.Object, condition, resources string) {
	t.Helper()
	provider.PatchStatus(t, s, fmt.Sprintf(`{"status":{"conditions":[{"type":"Authentication","status":"Accepted"},{"type":"Resources","status":%q}],"resources":%s}}`, condition, resources))
}

// awaitQuota waits until holds returns true for the Quota of a slice, and returns the Quota.
func awaitQuota(t *testing.T, name string, holds func(*offloading.Quota) bool) *offloading.Quota {
	t.Helper()
	q := &offloading.Quota{}
	controllertest.Eventually(t, "Quota "+name, func() error {
		if err := provider.Client.Get(t.Context(), client.ObjectKey{Namespace: tenant, Name: name}, q); err != nil {
			return err
		}
		if !holds(q) {
			return fmt.Errorf("it is %+v", q.Spec)
		}
		return nil
	})
	return q
}

func isCordoned(q *offloading.Quota) bool { return q.Spec.Cordoned != nil && *q.Spec.Cordoned }

func has(name corev1.ResourceName, quantity string) func(*offloading.Quota) bool {
	return func(q *offloading.Quota) bool {
		is, ok := q.Spec.Resources[name]
		return ok && is.Equal(resource.MustParse(quantity))
	}
}

func TestQuotasOfResourceSlices(t *testing.T) {
	require.NoError(t, provider.Grant(t.Context(), rbac.Manager{Subject: rbac.User(controllertest.ManagerUser)}.ResourceSlices()...))
	provider.Create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant, Labels: map[string]string{wire.TenantNamespaceLabel: "true", wire.RemoteClusterIDLabel: "rome"}}})
	manager := provider.StartManager(t, func(o *controllers.Options) { o.ResourceSlices.Enabled = true })

	t.Run("what was granted", func(t *testing.T) {
		s := slice(tenant, "granted", "rome")
		provider.Create(t, s)
		answer(t, s, "Accepted", `{"cpu":"4","memory":"8Gi"}`)
		q := awaitQuota(t, "granted"+ofRome, has("cpu", "4"))
		assert.Equal(t, "granted"+ofRome, q.Spec.User)
		assert.Nil(t, q.Spec.Cordoned)
		assert.Equal(t, offloading.NoLimitsEnforcement, q.Spec.LimitsEnforcement, "Liqo's webhook would take none for a strict one")
		assert.True(t, metav1.IsControlledBy(q, s))
		assert.Contains(t, provider.AwaitEvent(t, tenant, "ResourceSlice", "granted", "QuotaCreated").Note, "may request cpu 4, memory 8Gi")

		provider.Patch(t, q, `{"spec":{"limitsEnforcement":"Hard"}}`)
		answer(t, s, "Accepted", `{"cpu":"2","memory":null}`)
		q = awaitQuota(t, q.Name, has("cpu", "2"))
		assert.NotContains(t, q.Spec.Resources, corev1.ResourceMemory)
		assert.Equal(t, offloading.HardLimitsEnforcement, q.Spec.LimitsEnforcement)

		provider.Patch(t, q, `{"spec":{"resources":{"cpu":"128"}}}`)
		awaitQuota(t, q.Name, has("cpu", "2"))
		provider.Delete(t, q)
		awaitQuota(t, q.Name, has("cpu", "2"))

		provider.Delete(t, s)
		provider.AwaitGone(t, q)
	})

	t.Run("cordons", func(t *testing.T) {
		s := slice(tenant, "cordons", "rome")
		provider.Create(t, s)
		answer(t, s, "Accepted", `{"cpu":"4"}`)
		uncordoned := func(q *offloading.Quota) bool { return !isCordoned(q) }
		name := "cordons" + ofRome
		awaitQuota(t, name, uncordoned)
		for _, annotation := range []string{"liqo.io/cordon", "liqo.io/cordon-tenant"} {
			provider.Patch(t, s, fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, annotation))
			awaitQuota(t, name, isCordoned)
			provider.Patch(t, s, fmt.Sprintf(`{"metadata":{"annotations":{%q:"false"}}}`, annotation))
			awaitQuota(t, name, uncordoned)
		}
		answer(t, s, "Denied", `null`)
		q := awaitQuota(t, name, isCordoned)
		assert.True(t, has("cpu", "4")(q), "pods that run go on")
	})

	t.Run("a cordon survives the ResourceSlice", func(t *testing.T) {
		isAnnotated := func(s *unstructured.Unstructured) {
			t.Helper()
			controllertest.Eventually(t, "ResourceSlice "+s.GetName()+" to be annotated", func() error {
				provider.Get(t, s, tenant, s.GetName())
				if s.GetAnnotations()[wire.CordonAnnotation] != "true" {
					return fmt.Errorf("annotations are %v", s.GetAnnotations())
				}
				return nil
			})
		}
		before := slice(tenant, "before", "rome")
		provider.Create(t, before)
		answer(t, before, "Accepted", `{"cpu":"1"}`)
		awaitQuota(t, "before"+ofRome, has("cpu", "1"))
		s := slice(tenant, "lasting", "rome")
		provider.Create(t, s)
		answer(t, s, "Accepted", `{"cpu":"4"}`)
		awaitQuota(t, "lasting"+ofRome, has("cpu", "4"))
		provider.Patch(t, s, `{"metadata":{"annotations":{"liqo.io/cordon":"true"}}}`)
		q := awaitQuota(t, "lasting"+ofRome, isCordoned)
		assert.Nil(t, metav1.GetControllerOf(q), "the garbage collector would delete it")

		// The consumer deletes the slice, recreates it, and creates another one. Both must be cordoned.
		provider.Delete(t, s)
		provider.AwaitGone(t, s)
		again, second := slice(tenant, "lasting", "rome"), slice(tenant, "second", "rome")
		for _, created := range []*unstructured.Unstructured{again, second} {
			provider.Create(t, created)
			answer(t, created, "Accepted", `{"cpu":"8"}`)
			isAnnotated(created)
			awaitQuota(t, created.GetName()+ofRome, func(q *offloading.Quota) bool { return isCordoned(q) && has("cpu", "8")(q) })
		}
		present := &offloading.Quota{}
		provider.Get(t, present, tenant, "before"+ofRome)
		assert.False(t, isCordoned(present), "what was there is not affected")

		// An administrator uncordons each slice. It is then treated like any other slice.
		for _, created := range []*unstructured.Unstructured{second, again} {
			provider.Patch(t, created, `{"metadata":{"annotations":{"liqo.io/cordon":null}}}`)
			q := awaitQuota(t, created.GetName()+ofRome, func(q *offloading.Quota) bool { return !isCordoned(q) })
			assert.True(t, metav1.IsControlledBy(q, created))
			provider.Delete(t, created)
			provider.AwaitGone(t, q)
		}
		third := slice(tenant, "third", "rome")
		provider.Create(t, third)
		answer(t, third, "Accepted", `{"cpu":"8"}`)
		assert.False(t, isCordoned(awaitQuota(t, "third"+ofRome, has("cpu", "8"))))

		// A slice that is cordoned before it is accepted stays cordoned.
		early := slice(tenant, "early", "rome")
		early.SetAnnotations(map[string]string{wire.CordonAnnotation: "true"})
		provider.Create(t, early)
		awaitQuota(t, "early"+ofRome, isCordoned)
		provider.Patch(t, early, `{"metadata":{"annotations":{"liqo.io/cordon":null}}}`)
		awaitQuota(t, "early"+ofRome, func(q *offloading.Quota) bool { return metav1.GetControllerOf(q) != nil })
	})

	t.Run("what is not granted", func(t *testing.T) {
		elsewhere := provider.Namespace(t)
		refused := map[string]*unstructured.Unstructured{
			"nobody has decided": slice(tenant, "undecided", "rome"), "denied": slice(tenant, "denied", "rome"),
			"for another consumer": slice(tenant, "turin", "turin"), "no tenant namespace": slice(elsewhere, "elsewhere", "rome"),
			"our own request to a provider": slice(tenant, "outgoing", "rome"),
		}
		refused["our own request to a provider"].SetLabels(map[string]string{wire.ReplicationLabel: "true"})
		for what, s := range refused {
			provider.Create(t, s)
			switch what {
			case "nobody has decided":
			case "denied":
				answer(t, s, "Denied", `null`)
			default:
				answer(t, s, "Accepted", `{"cpu":"4"}`)
			}
		}
		assert.Contains(t, provider.AwaitEvent(t, tenant, "ResourceSlice", "turin", "QuotaNotCreated").Note, "not the tenant namespace of that cluster")
		provider.AwaitEvent(t, elsewhere, "ResourceSlice", "elsewhere", "QuotaNotCreated")

		last := slice(tenant, "last", "rome")
		provider.Create(t, last)
		answer(t, last, "Accepted", `{}`)
		q := awaitQuota(t, "last"+ofRome, func(*offloading.Quota) bool { return true })
		assert.Empty(t, q.Spec.Resources)
		for what, s := range refused {
			assert.Emptyf(t, manager.Writes.About("/quotas/"+s.GetName()), what)
			quotas := &offloading.QuotaList{}
			require.NoError(t, provider.Client.List(t.Context(), quotas, client.InNamespace(s.GetNamespace())))
			for i := range quotas.Items {
				assert.NotContains(t, quotas.Items[i].Name, s.GetName(), what)
			}
		}
	})

	t.Run("what an administrator has made", func(t *testing.T) {
		theirs := &offloading.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: "theirs" + ofRome},
			Spec: offloading.QuotaSpec{User: "theirs" + ofRome, Resources: corev1.ResourceList{"cpu": resource.MustParse("1")}}}
		provider.Create(t, theirs)
		s := slice(tenant, "theirs", "rome")
		provider.Create(t, s)
		answer(t, s, "Accepted", `{"cpu":"4"}`)
		assert.Contains(t, provider.AwaitEvent(t, tenant, "ResourceSlice", "theirs", "QuotaNotCreated").Note, "does not belong to this ResourceSlice")
		awaitQuota(t, theirs.Name, has("cpu", "1"))
		provider.Delete(t, s)
		assert.NoError(t, provider.Client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs), "it is theirs")
	})
}

// TestMissingCRD checks that the error names the missing CRD.
func TestMissingCRD(t *testing.T) {
	_, err := bare.TryManager(t, func(o *controllers.Options) { o.ResourceSlices.Enabled = true })
	assert.ErrorContains(t, err, "need the CRD of ResourceSlices")
}
